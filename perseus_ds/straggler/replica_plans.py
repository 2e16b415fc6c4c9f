"""Which plan every replica runs: the objective's, or what a straggler leaves room for; who keeps its time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.controller import StragglerController
from perseus_ds.straggler.decision import StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.observation import ReplicaObservation, ReplicaStatus
from perseus_ds.straggler.tuning import BEHIND, CONFIRMATIONS, MAX_COST_PCT

_KEPT = 8  # iterations until the numbers of one have come, with room to spare


class ReplicaPlans:
    """Record who runs which plan at which iteration, and ask the controller.

    Every rank keeps the whole book, because what a replica did is judged by what its plan predicted; all
    are fed alike and so come to the same decision at the same iteration, all stages of a replica together.
    Not ``answered``: replicas are judged all the same, and run the objective's plans throughout.
    ``max_cost_pct`` and ``exposed`` bound what answers cost (``AnswerCost``).

    Shape: ``indexes`` one for each replica; replicas with the same GPUs share theirs.
    """

    def __init__(
        self,
        indexes: Sequence[FrontierIndex],
        *,
        answered: bool = True,
        max_cost_pct: float = MAX_COST_PCT,
        exposed: int = 2,
    ) -> None:
        self._indexes = indexes
        self._answered = answered
        self._controller = StragglerController(
            np.array([frontier_index.objective_s for frontier_index in indexes]),
            np.array([frontier_index.fastest_s for frontier_index in indexes]),
            scatter=float(np.max([frontier_index.scatter for frontier_index in indexes])),
            max_cost_pct=max_cost_pct,
            exposed=exposed,
        )
        self._pace = Pace(len(indexes))
        self._unknown = np.full(len(indexes), np.nan)
        self._run_s: dict[int, NDArray[np.float64]] = {}
        self.plans = [frontier_index.objective for frontier_index in indexes]
        self._planned_s = self._predicted_s()
        self.decision: StragglerDecision | None = None
        self.observed: ReplicaStatus | None = None

    def observe(self, about: int, observed: ReplicaStatus) -> bool:
        """Judge iteration ``about``; return whether some replica runs another plan from now on.

        Cost: see scripts/bench/straggler; linear in replicas.
        """
        planned_s = self._run_s.pop(about, self._unknown)
        decision = self._controller.observe(
            ReplicaObservation(observed.own_s, planned_s, observed.announced, observed.capped)
        )
        self.decision, self.observed = decision, observed
        self._pace.observe(observed.own_s / planned_s)
        if not (decision.changed and self._answered):
            return False
        before = self.plans
        self.plans = [
            frontier_index.choose(decision.budget(replica))
            for replica, frontier_index in enumerate(self._indexes)
        ]
        self._planned_s = self._predicted_s()
        return self.plans != before

    def will_run(self, index: int) -> None:
        """Note that iteration ``index`` is run by the present plans; of others nothing is known."""
        self._run_s.pop(index - _KEPT, None)
        self._run_s[index] = self._planned_s

    @property
    def on_pace(self) -> Sequence[bool]:
        """Which replicas last as long as the plan that they run predicts."""
        return (~self._pace.behind).tolist()

    @property
    def cost_pct(self) -> float:
        """What answers have cost over the last 1 000 iterations."""
        return self._controller.cost_pct

    @property
    def sync_time_s(self) -> float | None:
        """The iteration time at which all meet; None while nobody waits."""
        return None if self.decision is None else self.decision.sync_time_s

    def _predicted_s(self) -> NDArray[np.float64]:
        return np.array(
            [
                frontier_index.expected_s[plan]
                for frontier_index, plan in zip(self._indexes, self.plans, strict=True)
            ]
        )


class Pace:
    """Which replicas last longer than what they run predicts, again and again.

    A clock that is asked for ahead comes too early where everything lasts longer: the end of a computation
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
