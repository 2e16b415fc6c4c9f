"""Plan of every replica: the objective's, or the one that a straggler leaves room for; who keeps its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.controller import (
    MAX_COST_PCT,
    Cause,
    ReplicaStatus,
    StragglerController,
    StragglerDecision,
)
from perseus_ds.straggler.estimate import CONFIRMATIONS
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.pacing import Pacing

BEHIND = 0.02  # how much longer than planned a replica takes that asks for no lower clock ahead
_KEPT = 8  # iterations until the numbers of one have come, with room to spare
_MISSING = 16  # iterations in a row without loads after which they are taken to be as usual
_Replicas = NDArray[np.float64]


class ReplicaPlans:
    """Record who runs which plan at which iteration, and ask the controller.

    Every rank keeps the whole book, because what a replica did is judged by what its plan predicted. All are
    fed alike and so come to the same decision at the same iteration, all stages of a replica together. Not
    ``answered``: replicas are judged all the same, and run the objective's plans throughout. ``max_cost_pct``
    and ``reaction_delay`` bound what answers cost (``SlowdownBudget``). Where replicas are paced by loads,
    ``forecast_error`` is the relative standard error of their predictions. What an iteration of unknown load
    takes proves nothing then, unless loads are missing for long.

    All replicas share ``index``, their common frontier.
    """

    def __init__(
        self,
        index: FrontierIndex,
        replicas: int,
        *,
        answered: bool = True,
        max_cost_pct: float = MAX_COST_PCT,
        reaction_delay: int = 2,
        forecast_error: float | None = None,
    ) -> None:
        self._index, self._replicas = index, replicas
        self._answered = answered
        self._restricted_from = 0
        self._controller = StragglerController(
            self._every(index.objective_s),
            self._every(index.fastest_s),
            scatter=index.scatter,
            max_cost_pct=max_cost_pct,
            reaction_delay=reaction_delay,
        )
        self._pace = Pace(replicas)
        self._run_s: dict[int, _Replicas] = {}
        self._pacing = None if forecast_error is None else Pacing(forecast_error)
        self._predicted_s: dict[int, tuple[_Replicas, _Replicas]] = {}
        self._missing = 0
        self._decided = self._present = self._every(index.objective)
        self._paced_iterations, self._slowed = 0, 0.0
        self.decision: StragglerDecision | None = None

    def restrict(self, frontier: FrontierIndex, *, index: int) -> None:
        """Run no plan from iteration ``index`` on that this frontier does not have: a power cap has changed.

        Whoever waits for a straggler runs the slower of both; a straggler runs the fastest below the cap.
        """
        self._index, self._restricted_from = frontier, index
        self._controller.restrict(self._every(frontier.objective_s), self._every(frontier.fastest_s))
        self._predicted_s.clear()
        self._follow(self.decision)

    def end_answers(self) -> None:
        self._answered = False
        self._follow(None)

    def observe(self, about: int, observed: ReplicaStatus) -> bool:
        """Judge iteration ``about``; return whether some replica runs another plan from now on."""
        planned_s, load = self._expect(about, observed.own_s)
        self.decision = self._controller.observe(
            observed, planned_s, load=load, costs=about >= self._restricted_from
        )
        self._pace.observe(observed.own_s / (planned_s if load is None else planned_s * load))
        before = self._decided
        if self.decision.changed and self._answered:
            self._follow(self.decision)
        self._present = self._decided
        return not np.array_equal(self._decided, before)

    def will_run(self, index: int) -> None:
        """Note that iteration ``index`` is run by the present plans; of others nothing is known."""
        for kept in (self._run_s, self._predicted_s):
            kept.pop(index - _KEPT, None)
        self._present = self._decided
        self._run_s[index] = self._index.predicted_s(self._present)

    def pace(self, index: int, predicted_s: _Replicas) -> bool:
        """Pace replicas to the longest of an iteration that begins; return whether one runs another plan.

        ``predicted_s`` is what each will take at its objective's plan and the loads of its microbatches; what
        is not positive and finite is unknown.

        Shape: [replicas].
        """
        known = np.isfinite(predicted_s) & (predicted_s > 0.0)
        if self._pacing is None or index not in self._run_s or not known.any():
            return False
        predicted_s, pace = np.where(known, predicted_s, np.nan), self._controller.pace
        self._predicted_s[index] = predicted_s, predicted_s * pace
        if self._answered and self._controller.budget.exhausted:
            self._present = self._every(self._index.objective)
        elif self._answered and np.isfinite(self._pacing.error):
            max_s = self._controller.longest_allowed_s(predicted_s)
            stretch = self._pacing.stretches(predicted_s * pace, max_s=max_s)
            self._present = self._index.at_stretch(stretch)
        self._run_s[index] = self._index.predicted_s(self._present)
        return not np.array_equal(self._present, self._decided)

    @property
    def plans(self) -> Sequence[float]:
        plans: list[float] = self._present.tolist()
        return plans

    @property
    def held(self) -> Sequence[int]:
        """Replicas that are slow because a power or thermal cap holds a clock of theirs down."""
        stragglers = () if self.decision is None else self.decision.stragglers
        return [one.replica for one in stragglers if one.cause is Cause.CAPPED]

    @property
    def on_pace(self) -> Sequence[bool]:
        """True for each replica that lasts as long as the plan that it runs predicts."""
        return (~self._pace.behind).tolist()

    @property
    def account(self) -> Mapping[str, float]:
        """Return what answers have cost, in how many iterations replicas were paced and how much."""
        return {
            "cost_pct": self._controller.budget.cost_pct,
            "paced_iterations": self._paced_iterations,
            "mean_slowed_pct": 100.0 * self._slowed / max(1, self._paced_iterations),
        }

    @property
    def sync_time_s(self) -> float | None:
        return None if self.decision is None else self.decision.sync_time_s

    def _follow(self, decision: StragglerDecision | None) -> None:
        """Run what a decision leaves room for, or the objective's plans."""
        self._decided = self._every(self._index.objective)
        if decision is not None and self._answered:
            for replica in np.flatnonzero(np.isfinite(decision.limit_s)).tolist():
                self._decided[replica] = self._index.within(float(decision.limit_s[replica]))
        self._present = self._decided

    def _every(self, value: float) -> _Replicas:
        return np.full(self._replicas, float(value))

    def _expect(self, about: int, own_s: _Replicas) -> tuple[_Replicas, _Replicas | None]:
        """Return what was expected of an iteration at the usual load, and what the load was (None: usual)."""
        unknown = np.full(len(own_s), np.nan)
        run_s, predicted = self._run_s.pop(about, unknown), self._predicted_s.pop(about, None)
        if self._pacing is None:
            return run_s, None
        if predicted is None:
            self._missing += 1
            return (run_s if self._missing >= _MISSING else unknown), None
        self._missing = 0
        (predicted_s, at_pace_s), objective_s = predicted, self._index.objective_s
        stretch = run_s / objective_s
        known = np.isfinite(own_s) & (own_s > 0.0) & ~self._controller.slow  # loads make nobody slow
        self._pacing.learn(np.where(known, own_s, np.nan) / (at_pace_s * stretch) - 1.0)
        self._paced_iterations += 1
        self._slowed += float(stretch.mean()) - 1.0
        return run_s, np.where(np.isfinite(predicted_s), predicted_s / objective_s, 1.0)


class Pace:
    """Replicas that last longer than what they run predicts, again and again.

    A clock that is asked for ahead comes too early where everything lasts longer. The end of a computation
    would be slowed, and most of all that of a straggler.

    Shape: ``behind`` [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self.behind = np.zeros(replicas, dtype=np.bool_)
        self._other = np.zeros(replicas, dtype=np.int64)

    def observe(self, ratio: NDArray[np.float64]) -> None:
        """Take in measured by planned duration of one iteration [replicas]; NaN is unknown."""
        with np.errstate(invalid="ignore"):
            late, known = ratio > 1.0 + BEHIND, np.isfinite(ratio) & (ratio > 0.0)
        self._other = np.where(known, np.where(late != self.behind, self._other + 1, 0), self._other)
        turned = self._other >= CONFIRMATIONS
        self.behind = self.behind ^ turned
        self._other[turned] = 0
