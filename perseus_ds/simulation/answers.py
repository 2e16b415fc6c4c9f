"""The product's own answer to stragglers in virtual time: observed in one iteration, played some later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler import FrontierIndex, ReplicaObservation, StragglerController, StragglerDecision


class Answers:
    """Which plan every replica plays; what is observed of iteration n holds from n + ``lag`` on.

    The engine collects the numbers of an iteration at the end of the next one: its lag is 2. ``answered``
    False plays the objective's plans throughout, for comparison; decisions are made all the same.
    """

    def __init__(self, indexes: Sequence[FrontierIndex], *, lag: int = 2, answered: bool = True) -> None:
        self._indexes = indexes
        self._answered = answered
        self._objective = [index.objective for index in indexes]
        self._coming = [list(self._objective) for _ in range(lag)]
        self._controller = StragglerController(
            np.array([index.objective_s for index in indexes]),
            np.array([index.fastest_s for index in indexes]),
        )
        self.decisions: list[StragglerDecision] = []

    def next_plans(self) -> list[int]:
        """Return what the next iteration is played at, a plan per replica."""
        return self._coming.pop(0)

    def observe(
        self,
        own_s: NDArray[np.float64],
        plans: Sequence[int],
        *,
        announced: NDArray[np.float64],
        capped: NDArray[np.bool_],
    ) -> StragglerDecision:
        """Hand over one iteration as the ranks exchange it; NaN is unknown.

        Shape: vectors [replicas].
        """
        planned_s = np.array(
            [index.expected_s[plan] for index, plan in zip(self._indexes, plans, strict=True)]
        )
        decision = self._controller.observe(ReplicaObservation(own_s, planned_s, announced, capped))
        self.decisions.append(decision)
        chosen = [index.choose(decision.budget(replica)) for replica, index in enumerate(self._indexes)]
        self._coming.append(chosen if self._answered else list(self._objective))
        return decision
