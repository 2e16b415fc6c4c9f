"""The frontiers of all replicas, for look-up of all at once; those with the same GPUs share one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.decision import StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex

_Seconds = NDArray[np.float64]
_Plans = NDArray[np.int64]


class Frontiers:
    """Plans of every replica by its own frontier.

    Shape: ``objective`` and ``objective_s`` [replicas].
    """

    def __init__(self, indexes: Sequence[FrontierIndex]) -> None:
        self._indexes = indexes
        who: dict[int, list[int]] = {}
        for replica, index in enumerate(indexes):
            who.setdefault(id(index), []).append(replica)
        self._groups = [(indexes[replicas[0]], np.array(replicas)) for replicas in who.values()]
        self.objective: _Plans = np.array([index.objective for index in indexes])
        self.objective_s: _Seconds = np.array([index.objective_s for index in indexes])

    def expected_s(self, plans: _Plans) -> _Seconds:
        """Return what each replica's plan predicts for itself.

        Shape: [replicas].
        """
        if len(self._groups) == 1:
            return self._indexes[0].expected_s[plans]
        expected_s = np.empty(len(plans))
        for index, replicas in self._groups:
            expected_s[replicas] = index.expected_s[plans[replicas]]
        return expected_s

    def decided(self, decision: StragglerDecision) -> _Plans:
        """Return what each replica runs by a decision."""
        plans = self.objective.copy()
        for replica in np.flatnonzero(np.isfinite(decision.limit_s)).tolist():
            plans[replica] = self._indexes[replica].choose(decision.budget(replica))
        return plans

    def stretched(self, stretch: NDArray[np.float64]) -> _Plans:
        """Return each replica's plan that takes at most so many times longer than its objective's.

        Shape: [replicas].
        """
        if len(self._groups) == 1:
            return self._indexes[0].stretched(stretch)
        plans = self.objective.copy()
        for index, replicas in self._groups:
            plans[replicas] = index.stretched(stretch[replicas])
        return plans

    def log_worth(self, stretch: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a second less costs each replica that may take so many times longer than its objective's plan.

        Shape: [replicas].
        """
        if len(self._groups) == 1:
            return self._indexes[0].log_worth(stretch)
        log_worth = np.empty(len(stretch))
        for index, replicas in self._groups:
            log_worth[replicas] = index.log_worth(stretch[replicas])
        return log_worth
