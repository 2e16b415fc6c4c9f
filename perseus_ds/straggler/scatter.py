"""How much an iteration's duration varies by itself, learned from what lies within the noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import FIRST_SCATTER, WINDOW

_ENOUGH = WINDOW // 2
_OWN = 3 * WINDOW // 4


class Scatter:
    """One figure for all replicas, and a larger one for those that vary more.

    Shape: ``each`` [replicas], relative standard deviations.
    """

    def __init__(self, replicas: int) -> None:
        self.each = np.full(replicas, FIRST_SCATTER)
        self._typical = np.full(2 * WINDOW, np.nan)
        self._heard = 0

    def hear(self, deviation: NDArray[np.float64]) -> None:
        """Take in relative deviations from the level of those replicas that have one."""
        size = np.abs(deviation)
        size = size[size > 0.0]  # the median itself is 0 away; NaN: no level yet
        if len(size):
            self._typical[self._heard % len(self._typical)] = np.median(size)
            self._heard += 1

    def review(self, own: NDArray[np.float64], count: NDArray[np.int64]) -> None:
        """Weigh what all show together against each replica's own middle half."""
        heard = min(self._heard, len(self._typical))
        pooled = FIRST_SCATTER
        if heard >= _ENOUGH:
            pooled = 1.4826 * float(np.median(self._typical[:heard]))
        self.each = np.where(count >= _OWN, np.fmax(own, pooled), pooled)
