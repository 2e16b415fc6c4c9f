"""Which plan every replica runs: the objective's, or what a straggler leaves room for; who keeps its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.controller import StragglerController
from perseus_ds.straggler.decision import Cause, StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex, Frontiers
from perseus_ds.straggler.lost_time import LostTime
from perseus_ds.straggler.observation import ReplicaObservation, ReplicaStatus
from perseus_ds.straggler.pacing import Outlook, PacedIteration, Pacing, ProgressMarks
from perseus_ds.straggler.tuning import BEHIND, CONFIRMATIONS, MAX_COST_PCT

_KEPT = 8  # iterations until the numbers of one have come, with room to spare
_UNTOLD = 16
"""Iterations in a row without loads after which they are taken to be as usual."""
_Replicas = NDArray[np.float64]


class ReplicaPlans:
    """Record who runs which plan at which iteration, and ask the controller.

    Every rank keeps the whole book, because what a replica did is judged by what its plan predicted. All are
    fed alike and so come to the same decision at the same iteration, all stages of a replica together. Not
    ``answered``: replicas are judged all the same, and run the objective's plans throughout. ``max_cost_pct``
    and ``exposed`` bound what answers cost (``AnswerCost``). Where there are ``marks``, replicas report how
    far they are within an iteration, and are paced to the longest.

    ``by_loads``: replicas report their loads. What an iteration of unknown load takes proves nothing then,
    unless loads are missing for long.

    Shape: ``indexes`` one for each replica; replicas with the same GPUs share theirs.
    """

    def __init__(
        self,
        indexes: Sequence[FrontierIndex],
        *,
        answered: bool = True,
        max_cost_pct: float = MAX_COST_PCT,
        exposed: int = 2,
        marks: ProgressMarks | None = None,
        by_loads: bool = False,
    ) -> None:
        self._frontiers = Frontiers(indexes)
        self._answered = answered
        self._restricted_from: int | None = None
        scatter = self._scatter = np.array([frontier_index.scatter for frontier_index in indexes])
        self._controller = StragglerController(
            self._frontiers.objective_s,
            np.array([frontier_index.fastest_s for frontier_index in indexes]),
            scatter=float(scatter.max()),
            max_cost_pct=max_cost_pct,
            exposed=exposed,
        )
        self._pace = Pace(len(indexes))
        self._unknown = np.full(len(indexes), np.nan)
        self._run_s: dict[int, _Replicas] = {}
        self._pacing = None if marks is None else Pacing(marks, self._log_worth)
        self._paced: dict[int, PacedIteration] = {}
        self._untold = 0 if by_loads else _UNTOLD
        self._recovered: tuple[int, _Replicas] | None = None
        self._decided = self._present = self._frontiers.objective
        self._stretch = np.ones(len(indexes))
        self._paced_iterations, self._slowed = 0, 0.0
        self._lost = LostTime()
        self.decision: StragglerDecision | None = None
        self.observed: ReplicaStatus | None = None

    def restrict(self, indexes: Sequence[FrontierIndex], *, index: int) -> None:
        """Run no plan from iteration ``index`` on that these frontiers do not have: a power cap has changed.

        Whoever waits for a straggler runs the slower of both; a straggler runs the fastest below the cap.
        """
        self._frontiers, self._restricted_from = Frontiers(indexes), index
        self._controller.restrict(self._frontiers.objective_s, np.array([one.fastest_s for one in indexes]))
        decision = self.decision if self._answered else None
        self._decided = self._frontiers.objective if decision is None else self._frontiers.decided(decision)
        self._recovered = None
        self._paced.clear()
        self._set(self._decided)

    def end_answers(self) -> None:
        """Run the objective's plans throughout from now on; replicas are judged all the same."""
        self._answered = False
        self._decided = self._frontiers.objective
        self._set(self._decided)

    def observe(self, about: int, observed: ReplicaStatus) -> bool:
        """Judge iteration ``about``; return whether some replica runs another plan from now on.

        Cost: see scripts/bench/straggler; linear in replicas.
        """
        planned_s, load = self._promised(about, observed.own_s)
        own_s = observed.own_s if load is None else observed.own_s / load
        decision = self._controller.observe(
            ReplicaObservation(own_s, planned_s, observed.announced, observed.capped, load),
            costs=self._restricted_from is None or about >= self._restricted_from,
        )
        self.decision, self.observed = decision, observed
        pace = own_s / planned_s
        self._pace.observe(pace)
        slow = {straggler.replica: straggler.slowdown for straggler in decision.stragglers}
        self._lost.observe(pace * self._frontiers.objective_s, load=load, slow=slow)
        if self._recovered is not None and about >= self._recovered[0]:
            self._recovered = None  # the controller has seen it as well
        before = self._decided
        if decision.changed and self._answered:
            self._decided = self._frontiers.decided(decision)
        self._begin_anew()
        return not np.array_equal(self._decided, before)

    def will_run(self, index: int) -> None:
        """Note that iteration ``index`` is run by the present plans; of others nothing is known."""
        for kept in (self._run_s, self._paced):
            kept.pop(index - _KEPT, None)
        self._begin_anew()
        self._run_s[index] = self._frontiers.expected_s(self._present)
        if self._pacing is not None:
            self._paced[index] = PacedIteration(self._controller.pace)

    def told(self, index: int, outlook: Outlook) -> bool:
        """Answer all reports of an iteration's next mark; return whether one changes its plan within it.

        Where nobody predicts from loads, those who wait already for a straggler are slowed no further; they
        only speed up when it has recovered.

        Cost: see scripts/bench/straggler; linear in replicas.
        """
        paced = self._paced.get(index)
        if self._pacing is None or paced is None:
            return False
        runs = self._stretch
        paced.told.append(outlook.cleaned())
        recovered = self._pacing.recovered(paced).any()
        if len(paced.told) == 1:
            paced.most_s = self._controller.longest_allowed_s(paced.told[0].left_s)
        wanted = self._pacing.stretches(paced)
        if not np.isfinite(paced.told[-1].error).any():
            wanted = runs
        elif not outlook.by_load.any():
            wanted = np.minimum(runs, wanted) if recovered else runs
        elif not self._controller.may_slow:
            wanted = np.minimum(runs, 1.0)
        if recovered:
            self._recovered = index, paced.awaited
        if self._answered:
            self._run(wanted)
        paced.stretch.append(self._stretch)
        return not np.array_equal(self._stretch, runs)

    @property
    def stretch(self) -> Sequence[float]:
        """How many times longer than the objective's plan takes what each replica runs now."""
        stretch: list[float] = self._stretch.tolist()
        return stretch

    @property
    def waits(self) -> bool:
        """Whether somebody waits for a straggler."""
        return self.decision is not None and bool(self.decision.waiting)

    @property
    def plans(self) -> Sequence[int]:
        """What every replica runs now."""
        plans: list[int] = self._present.tolist()
        return plans

    @property
    def held(self) -> Sequence[int]:
        """Replicas that are slow because a power or thermal cap holds a clock of theirs down."""
        stragglers = () if self.decision is None else self.decision.stragglers
        return [one.replica for one in stragglers if one.cause is Cause.CAPPED]

    @property
    def on_pace(self) -> Sequence[bool]:
        """Which replicas last as long as the plan that they run predicts."""
        return (~self._pace.behind).tolist()

    @property
    def cost_pct(self) -> float:
        """What answers have cost over the last 1 000 iterations."""
        return self._controller.cost_pct

    @property
    def account(self) -> Mapping[str, float]:
        """What answers have cost, in how many iterations replicas were paced and how much, and time lost."""
        slowed_pct = 100.0 * self._slowed / self._paced_iterations if self._paced_iterations else 0.0
        return {
            "cost_pct": self.cost_pct,
            "paced_iterations": self._paced_iterations,
            "mean_slowed_pct": slowed_pct,
            **self._lost.account,
        }

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all meet; None while nobody waits."""
        return None if self.decision is None else self.decision.sync_time_s

    def _promised(self, about: int, own_s: _Replicas) -> tuple[_Replicas, _Replicas | None]:
        """What was expected of an iteration at the usual load, and what the load was (None: usual)."""
        run_s, paced = self._run_s.pop(about, self._unknown), self._paced.pop(about, None)
        by_load = paced is not None and bool(paced.told) and bool(paced.told[0].by_load.any())
        self._untold = 0 if by_load else min(_UNTOLD, self._untold + 1)
        if not by_load and self._untold < _UNTOLD:
            return self._unknown, None
        if self._pacing is None or paced is None or not paced.told:
            return run_s, None
        self._pacing.learn(paced, _or_nan(own_s), slow=self._controller.slow)
        begun = paced.told[0]
        if by_load:
            self._paced_iterations += 1
            self._slowed += float(paced.stretch[-1].mean()) - 1.0
        with np.errstate(invalid="ignore"):
            load = np.where(begun.known & begun.by_load, begun.left_s / self._frontiers.objective_s, 1.0)
            planned_s = paced.planned_s / load
        return np.where(np.isfinite(planned_s) & (planned_s > 0.0), planned_s, run_s), load

    def _begin_anew(self) -> None:
        """Have all run what was decided, nobody slower than a recovery that is just seen leaves room for."""
        self._set(self._decided)
        if self._recovered is not None and self._pacing is not None:
            still = self._frontiers.objective_s
            outlook = Outlook(np.zeros(len(still)), still, self._scatter, np.zeros(len(still), np.bool_))
            anew = PacedIteration(self._recovered[1], [outlook.cleaned()])
            self._run(np.minimum(self._stretch, self._pacing.stretches(anew)))

    def _log_worth(self, stretch: _Replicas) -> _Replicas:
        return self._frontiers.log_worth(stretch)

    def _run(self, stretch: _Replicas) -> None:
        """Choose plans anew where they are to take another time."""
        other = stretch != self._stretch
        self._set(np.where(other, self._frontiers.stretched(stretch), self._present))

    def _set(self, plans: NDArray[np.int64]) -> None:
        if plans is not self._present:
            self._present = plans
            self._stretch = self._frontiers.expected_s(plans) / self._frontiers.objective_s


def _or_nan(own_s: _Replicas) -> _Replicas:
    return np.where(np.isfinite(own_s) & (own_s > 0.0), own_s, np.nan)


class Pace:
    """Which replicas last longer than what they run predicts, again and again.

    A clock that is asked for ahead comes too early where everything lasts longer. The end of a computation
    would be slowed, and most of all that of a straggler.

    Shape: ``behind`` [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self.behind = np.zeros(replicas, dtype=np.bool_)
        self._other = np.zeros(replicas, dtype=np.int64)

    def observe(self, ratio: NDArray[np.float64]) -> None:
        """Take in measured by planned duration of one iteration; NaN is unknown.

        Shape: ``ratio`` [replicas].
        """
        with np.errstate(invalid="ignore"):
            late, known = ratio > 1.0 + BEHIND, np.isfinite(ratio) & (ratio > 0.0)
        self._other = np.where(known, np.where(late != self.behind, self._other + 1, 0), self._other)
        turned = self._other >= CONFIRMATIONS
        self.behind = self.behind ^ turned
        self._other[turned] = 0
