"""What each replica is held against to see whether it has changed: its own long mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import LEAST_SCATTER, WINDOW

_LONG = 4 * WINDOW  # iterations of the mean's memory
_NOISY = 0.06  # scatter above which the memory is longer in proportion, up to twice as long
_MOST_SIGMAS = 3.0


class Reference:
    """Mean of measured by planned duration of every replica, since it changed last.

    Its memory is longer where iterations are noisier. There a change takes many iterations to show, and the
    mean must not follow it meanwhile. So a mean that a replica may be leaving is held, but none of fewer
    than ``_LONG`` iterations. The error of a held mean counts in every further iteration. One of c iterations
    multiplies false alarms by ``exp(2 s^2 / c)``; s is how many standard deviations a sum has to go. For 10
    that is 23 times at 64, 500 times at 32.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean = np.full(replicas, np.nan)
        self._count = np.zeros(replicas, dtype=np.int64)

    @property
    def judges(self) -> NDArray[np.bool_]:
        """Whose reference is known well enough to see a change by."""
        return self._count >= WINDOW // 2

    def sigmas(
        self, ratio: NDArray[np.float64], scatter: NDArray[np.float64], leaving: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Take in one iteration; return how many standard deviations it is above the reference.

        Longer ones count by their logarithm: what varies with its load has a long tail there.
        NaN is unknown. ``leaving`` marks replicas that may be about to leave theirs.
        """
        spread = np.maximum(scatter, LEAST_SCATTER)
        deviation = ratio / self._mean - 1.0
        deviation = np.log1p(np.maximum(deviation, 0.0)) + np.minimum(deviation, 0.0)
        known = np.isfinite(ratio)
        if not self._count.all():
            self._mean = np.where(known & (self._count == 0), ratio, self._mean)
        longest = min(max(_LONG, int(_LONG * float(spread.min()) / _NOISY)), 2 * _LONG)
        self._count = np.minimum(self._count + known, longest)
        share = 1.0 / np.maximum(self._count, 1)
        sigmas: NDArray[np.float64] = deviation / (spread * np.sqrt(1.0 + share))
        step = np.minimum(np.maximum(deviation, -_MOST_SIGMAS * spread), _MOST_SIGMAS * spread) * share
        step[~np.isfinite(deviation) | (leaving & (self._count >= _LONG))] = 0.0
        self._mean = self._mean * (1.0 + step)
        return sigmas

    def restart(self, who: NDArray[np.bool_], level: NDArray[np.float64], count: NDArray[np.int64]) -> None:
        """Begin anew for some replicas, from a level that rests on so many iterations."""
        self._mean = np.where(who, level, self._mean)
        self._count = np.where(who, count, self._count)
