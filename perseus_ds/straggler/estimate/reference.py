"""What each replica is held against to see whether it has changed: its own long mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import LEAST_SCATTER, WINDOW

_LONG = 4 * WINDOW  # iterations of the mean's memory
_NOISY = 0.06  # scatter above which the memory is longer in proportion, up to twice as long
_MOST_SIGMAS = 3.0
_FEWEST = 4  # replicas whose means tell how far apart means are
_OF_MEDIAN = 1.4826  # a normal standard deviation, by the median of absolute deviations


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
        deviation = _deviation(ratio, self._mean)
        judged = deviation if spread.min() < _NOISY else _deviation(ratio, self._shrunk(spread))
        known = np.isfinite(ratio)
        if not self._count.all():
            self._mean = np.where(known & (self._count == 0), ratio, self._mean)
        longest = min(max(_LONG, int(_LONG * float(spread.min()) / _NOISY)), 2 * _LONG)
        self._count = np.minimum(self._count + known, longest)
        share = 1.0 / np.maximum(self._count, 1)
        sigmas: NDArray[np.float64] = judged / (spread * np.sqrt(1.0 + share))
        step = np.minimum(np.maximum(deviation, -_MOST_SIGMAS * spread), _MOST_SIGMAS * spread) * share
        step[~np.isfinite(deviation) | (leaving & (self._count >= _LONG))] = 0.0
        self._mean = self._mean * (1.0 + step)
        return sigmas

    def _shrunk(self, spread: NDArray[np.float64]) -> NDArray[np.float64]:
        """Own means, nearer to their median where few iterations explain how far they are apart.

        Source: empirical Bayes, B. Efron and C. Morris, JASA 68 (1973).
        """
        if len(self._mean) < _FEWEST or not self._count.all():
            return self._mean
        middle = float(np.median(self._mean))
        apart, error = self._mean / middle - 1.0, spread**2 / self._count
        between = max(0.0, (_OF_MEDIAN * float(np.median(np.abs(apart)))) ** 2 - float(np.median(error)))
        shrunk: NDArray[np.float64] = middle * (1.0 + apart * between / (between + error))
        return shrunk

    def restart(self, who: NDArray[np.bool_], level: NDArray[np.float64], count: NDArray[np.int64]) -> None:
        """Begin anew for some replicas, from a level that rests on so many iterations."""
        self._mean = np.where(who, level, self._mean)
        self._count = np.where(who, count, self._count)


def _deviation(ratio: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    deviation = ratio / mean - 1.0
    found: NDArray[np.float64] = np.log1p(np.maximum(deviation, 0.0)) + np.minimum(deviation, 0.0)
    return found
