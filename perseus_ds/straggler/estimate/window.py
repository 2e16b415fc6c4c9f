"""The last few numbers of every replica, and their median."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.tuning import WINDOW

_PLACES = np.arange(WINDOW)
_MIDDLE_DIFFERENCE = 0.9539  # of two normal numbers, in their standard deviations


class Windows:
    """A ring per replica; forgetting one replica's past leaves the others'.

    ``full``: all were there when the median was taken last.

    Shape: [replicas, WINDOW], NaN where nothing was entered yet.
    """

    def __init__(self, replicas: int) -> None:
        self._ring = np.full((replicas, WINDOW), np.nan)
        self._entered = np.zeros(replicas, dtype=np.int64)
        self._everyone = np.arange(replicas)
        self.full = False

    @property
    def count(self) -> NDArray[np.int64]:
        """How many numbers each window holds."""
        return np.minimum(self._entered, WINDOW)

    def enter_all(self, numbers: NDArray[np.float64]) -> None:
        """Enter one number for every replica."""
        self._ring[self._everyone, self._entered % WINDOW] = numbers
        self._entered += 1

    def enter(self, who: NDArray[np.intp], numbers: NDArray[np.float64]) -> None:
        """Enter one number for each of some replicas."""
        self._ring[who, self._entered[who] % WINDOW] = numbers
        self._entered[who] += 1

    def keep_last(self, who: NDArray[np.intp], count: NDArray[np.int64]) -> None:
        """Forget all but the last few numbers of some replicas."""
        kept = np.minimum(count, self.count[who])
        order = (self._entered[who, None] - kept[:, None] + _PLACES) % WINDOW  # oldest that is kept first
        oldest_first = np.take_along_axis(self._ring[who], order, axis=1)
        self._ring[who] = np.where(kept[:, None] > _PLACES, oldest_first, np.nan)
        self._entered[who] = kept
        self.full = self.full and not len(who)

    def lasting(self, who: NDArray[np.intp], level: NDArray[np.float64], within: float) -> NDArray[np.int64]:
        """How many of the latest numbers of some replicas in a row lie within a share of a level."""
        order = (self._entered[who, None] - 1 - _PLACES) % WINDOW  # newest first
        close = np.abs(np.take_along_axis(self._ring[who], order, axis=1) / level[:, None] - 1.0) <= within
        lasting: NDArray[np.int64] = np.cumprod(close, axis=1).sum(axis=1)
        return lasting

    def median(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Median (the lower of two) and scatter of every window; NaN where it is empty.

        The scatter is the standard deviation of a normal distribution with the same middle half.

        Cost: linear in replicas.
        """
        ordered = np.sort(self._ring, axis=1)  # NaN goes last
        last = np.maximum(self.count - 1, 0)
        self.full = bool((last == WINDOW - 1).all())
        median = ordered[self._everyone, last // 2]
        middle_half = ordered[self._everyone, (3 * last + 2) // 4] - ordered[self._everyone, last // 4]
        return median, middle_half / (1.349 * median)

    def successive_spread(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scatter of every window by its successive differences, which one change of level does not widen.

        In parts of a level; NaN where there is no difference yet.
        """
        order = (self._entered[:, None] - self.count[:, None] + _PLACES) % WINDOW  # oldest first
        apart = np.sort(np.abs(np.diff(np.take_along_axis(self._ring, order, axis=1), axis=1)), axis=1)
        middle: NDArray[np.float64] = apart[self._everyone, np.maximum(self.count - 2, 0) // 2]
        return middle / (_MIDDLE_DIFFERENCE * level)

    def square_deviation(self, level: NDArray[np.float64], most: float) -> NDArray[np.float64]:
        """Mean square of what each window's numbers differ from a level by, in parts of it; 0 where empty.

        A number differs by ``most`` at the most.
        """
        apart = np.minimum(np.abs(self._ring / level[:, None] - 1.0), most)
        total: NDArray[np.float64] = np.nansum(apart**2, axis=1)
        return total / np.maximum(self.count, 1)

    def drift(self, who: NDArray[np.intp]) -> NDArray[np.float64]:
        """How much the newer half of some full windows is above the older; 0 while they fill."""
        order = (self._entered[who, None] + _PLACES) % WINDOW
        halves = self._ring[who[:, None], order].reshape(len(who), 2, WINDOW // 2)
        older, newer = np.partition(halves, WINDOW // 4, axis=2)[:, :, WINDOW // 4].T
        return np.where(self._entered[who] >= WINDOW, newer / older - 1.0, 0.0)
