"""The product's own answer to stragglers in virtual time: what is observed of an iteration arrives later."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from perseus_ds.straggler import FrontierIndex, ReplicaPlans, ReplicaStatus, StragglerDecision


class Answers:
    """`ReplicaPlans` as a job asks them: the numbers of iteration n decide what runs from n + ``lag`` on.

    A job collects the numbers of an iteration at the end of the next one: its lag is 2. Like a job, it
    judges no replica by the first iteration, in which clocks change. ``decisions`` are those in hand as
    each iteration ends. ``answered`` False runs the objective's plans throughout, for comparison.
    """

    def __init__(self, indexes: Sequence[FrontierIndex], *, lag: int = 2, answered: bool = True) -> None:
        self._replica_plans = ReplicaPlans(indexes, answered=answered, exposed=lag)
        self._under_way = deque(ReplicaStatus.unknown(len(indexes)) for _ in range(lag - 1))
        self._lag = lag
        self.decisions: list[StragglerDecision] = []

    @property
    def plans(self) -> Sequence[int]:
        """What the next iteration is run at, a plan per replica."""
        return self._replica_plans.plans

    @property
    def cost_pct(self) -> float:
        """What answers have cost over the last 1 000 iterations."""
        return self._replica_plans.cost_pct

    @property
    def on_pace(self) -> Sequence[bool]:
        """Which replicas last as long as the plan that they run predicts."""
        return self._replica_plans.on_pace

    def observe(self, status: ReplicaStatus) -> None:
        """End an iteration, of which the replicas report this."""
        index = len(self.decisions)
        self._under_way.append(status)
        self._replica_plans.observe(index + 1 - self._lag, self._under_way.popleft())
        self._replica_plans.will_run(index + 1)
        assert self._replica_plans.decision is not None
        self.decisions.append(self._replica_plans.decision)
