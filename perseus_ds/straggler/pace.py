"""Who keeps its plan's time: only there may a lower clock be asked for ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import BEHIND, CONFIRMATIONS


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
