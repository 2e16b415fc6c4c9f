"""What answers to stragglers have cost, and how far the next one may go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Replicas = NDArray[np.float64]

HORIZON = 1000
"""Iterations over which the cost is bounded."""

_SLOWED = 1.0 + 1e-9
_PLANNED = 0.9  # of the bound: what noise adds is not known before


class AnswerCost:
    """Time that the job lost because replicas ran slower than their objective's plan, in iterations.

    Answers cost time when the straggler recovers, because the others run on for ``exposed`` iterations until
    they know. They also cost time while it lasts, because waiting replicas vary. Both are kept within
    ``max_pct`` of the last 1 000 iterations. What may be lost at the recovery is set aside before an answer
    is given. Once all is ``spent``, no answer is given until half of it is forgotten.

    Shape: ``objective_s`` [replicas], what each objective's plan predicts.
    """

    def __init__(self, objective_s: _Replicas, *, max_pct: float, exposed: int) -> None:
        self._objective_s = objective_s
        self._most = _PLANNED * max_pct / 100.0 * HORIZON
        self._exposed = exposed
        self._lost = np.zeros(HORIZON)
        self._place = 0
        self.lost = 0.0
        self.spent = False

    @property
    def pct(self) -> float:
        """Cost over the last 1 000 iterations."""
        return 100.0 * self.lost / HORIZON

    @property
    def slower_by(self) -> float:
        """How much slower, relatively, an iteration may be made without room for more being lost."""
        return 0.0 if self.spent else (self._most - self.lost) / self._exposed

    def expect(self, objective_s: _Replicas) -> None:
        """Go on with other plans where nobody waits."""
        self._objective_s = objective_s

    def observe(self, own_s: _Replicas, planned_s: _Replicas, *, load: _Replicas | None = None) -> None:
        """Take in one iteration.

        ``own_s`` and ``planned_s`` are at the usual load; ``load`` is what each replica had of it.
        """
        lost = self._lost_in(own_s, planned_s, 1.0 if load is None else load)
        if lost or self.lost:
            self.lost = max(0.0, self.lost + lost - float(self._lost[self._place]))
        self._lost[self._place] = lost
        self._place = (self._place + 1) % HORIZON
        self.spent = self.lost >= self._most / 2 if self.spent else self.lost >= self._most

    def _lost_in(self, own_s: _Replicas, planned_s: _Replicas, load: _Replicas | float) -> float:
        """Against every replica at its objective's plan, as it would have kept it."""
        slowed = planned_s > self._objective_s * _SLOWED
        known = np.isfinite(own_s) & (own_s > 0.0)
        if not (slowed & known).any():
            return 0.0
        slowed &= known & np.isfinite(planned_s)
        needed_s = own_s.copy()
        needed_s[slowed] *= self._objective_s[slowed] / planned_s[slowed]
        own_s, needed_s = own_s * load, needed_s * load
        return float(own_s[known].max() / needed_s[known].max() - 1.0)
