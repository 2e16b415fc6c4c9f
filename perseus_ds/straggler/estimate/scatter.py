"""How much one iteration of a replica varies: as the profile predicts, then as iterations show."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import FALSE_ALARM, NOISIER, NOISIER_AT_ONCE, PROFILE_COUNTS, WINDOW

_MEMORY = 16 * WINDOW  # observations of each replica
_OWN_MEMORY = 4 * WINDOW


class Scatter:
    """Relative standard deviation of one iteration, common to all replicas; infinite until it is known.

    ``first`` is the profile's; it counts as ``PROFILE_COUNTS`` observations, because it knows nothing of what
    is alike in all computations of an iteration. NaN: the profile does not state it, so that half a window of
    iterations has to.
    """

    def __init__(self, first: float) -> None:
        known = math.isfinite(first)
        self._variance = first**2 if known else 0.0
        self._weight = float(PROFILE_COUNTS) if known else 0.0

    @property
    def known(self) -> bool:
        """Whether anything is known of it."""
        return self._weight > 0.0

    @property
    def deviation(self) -> float:
        """The estimate and its standard error: rather too much than too little.

        A false alarm has the probability ``exp(-L)``, and an estimate that errs by ``e`` makes it
        ``exp(-L (1 - 2 e))``. ``L / (2 weight)`` more keeps that on average where the error is small.
        """
        if not self.known:
            return math.inf
        more = min(math.sqrt(0.5 / self._weight), -math.log(FALSE_ALARM) / (2.0 * self._weight))
        return math.sqrt(self._variance) * (1.0 + more)

    def learn(self, square: NDArray[np.float64], count: NDArray[np.int64], *, fresh: int) -> None:
        """Take in each replica's mean square deviation from its level over its last ``count`` iterations.

        ``fresh`` of them were not learned from before.

        Shape: both [replicas].
        """
        use = count > 1
        if not use.any() or not (self.known or count.max() >= WINDOW // 2):
            return
        freedom = count[use] - 1.0
        seen = float((square[use] * count[use]).sum() / freedom.sum())
        share = np.minimum(1.0, fresh / count[use]) if self.known else 1.0
        weight = float((freedom * share).sum())
        self._variance += (seen - self._variance) * weight / (self._weight + weight)
        self._weight = min(self._weight + weight, float(_MEMORY * len(count)))


class OwnScatter:
    """Relative standard deviation of each replica by itself, by the middle half of its windows.

    One window errs by 29 %: of 25 replicas that vary alike one would look 1.5 times noisier. So several are
    averaged. A single window counts where it is beyond doubt, and a quiet one ends it at once.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._mean = np.zeros(replicas)
        self._full = np.zeros(replicas, dtype=np.bool_)
        self._last = np.zeros(replicas)

    def learn(
        self,
        spread: NDArray[np.float64],
        steady: NDArray[np.bool_],
        count: NDArray[np.int64],
        *,
        fresh: int,
    ) -> None:
        """Take in the spread of every window of ``count`` iterations where it is ``steady``.

        ``fresh`` of them were not learned from before. Until a window is full it counts alone.
        """
        share = np.where(self._full, min(1.0, fresh / _OWN_MEMORY), 1.0)
        self._mean = np.where(steady, self._mean + share * (spread - self._mean), self._mean)
        self._last = np.where(steady, spread, self._last)
        self._full |= steady & (count >= WINDOW)

    def unless_common(self, common: float) -> NDArray[np.float64]:
        """Return every replica's own as of its last window where it is clearly above the common one."""
        clearly = (self._last > NOISIER_AT_ONCE * common) | (self._mean > NOISIER * common)
        return np.where(clearly & (self._last > NOISIER * common), self._last, common)
