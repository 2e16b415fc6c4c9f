"""How slow every replica is against its own plan: a running median that jumps when iterations agree."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.estimate.flap_damping import FlapDamping
from perseus_ds.straggler.estimate.window import Windows
from perseus_ds.straggler.tuning import (
    CONFIRMATIONS,
    FIRST_SCATTER,
    LEAST_JUMP,
    NOISE_SIGMAS,
    REVIEW_EVERY,
    WINDOW,
)

_Replicas = NDArray[np.bool_]
_LEARNED = 0.25  # of what a review shows
_AHEAD = 1.25  # from the middle of a window to its end and 2 iterations on, in half windows


class SlowdownEstimate:
    """Measured by planned duration of every replica, robustly.

    What lies within the noise moves the median. What lies beyond it is set aside: alone it was a hiccup
    and is dropped; ``CONFIRMATIONS`` in a row are a new level, and the median starts anew from them. A
    replica that turns slow for short spells again and again has to confirm it longer.

    Shape: vectors [replicas], as of the last review; ``level`` is NaN before the first known iteration,
    ``count`` how many iterations it rests on, ``scatter`` the relative standard deviation of one
    iteration, ``error`` the relative standard error of the level: that of a median.
    """

    def __init__(self, replicas: int) -> None:
        self.level = np.full(replicas, np.nan)
        self.count = np.zeros(replicas, dtype=np.int64)
        self.scatter = np.full(replicas, FIRST_SCATTER)
        self.error = 1.25 * self.scatter
        self._band = self._noise()
        self._pooled = FIRST_SCATTER
        self._windows = Windows(replicas)
        self._damping = FlapDamping(replicas)
        self._above = np.zeros(replicas, dtype=np.int64)
        self._below = np.zeros(replicas, dtype=np.int64)
        self._side = np.zeros(replicas)
        self._in_a_row = np.zeros(replicas, dtype=np.int64)
        self._aside = np.full(replicas, np.nan)
        self._anything_aside = False
        self._unreviewed = 0

    @property
    def sure(self) -> _Replicas:
        """Whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    def observe(self, ratio: NDArray[np.float64], *, impatient: _Replicas, review_every: int) -> bool:
        """Take in one iteration; return whether the levels were taken anew.

        What is not finite and above 0 is unknown. ``impatient`` marks replicas of whom one faster
        iteration is enough: those that others wait for.
        """
        self._damping.tick()
        jumped = False
        deviation = ratio / self.level - 1.0
        if not self._anything_aside and (np.abs(deviation) <= self._band).all():
            self._windows.enter_all(ratio)
        else:
            jumped = self._hear_outside(ratio, deviation, impatient)
        return self._review(now=jumped or self._leans(deviation, impatient), every=review_every)

    def sinking(self, who: NDArray[np.intp]) -> NDArray[np.float64]:
        """How far below their median some replicas are by now if they become faster bit by bit; 0 or less.

        A median is half a window behind, and what is decided is run a few iterations later.
        """
        change = self._windows.drift(who)
        noise = 1.2 * 1.25 * self.scatter[who] * math.sqrt(2.0 / (WINDOW // 2))
        return np.where(change < -noise, _AHEAD * change, 0.0)

    def _leans(self, deviation: NDArray[np.float64], impatient: _Replicas) -> bool:
        """Whether one of whom others wait was on the same side of its median several times in a row."""
        if not impatient.any():
            return False
        side = np.sign(deviation)
        self._in_a_row = np.where(side == self._side, self._in_a_row + 1, 1)
        self._side = side
        return bool((self._in_a_row[impatient] >= REVIEW_EVERY).any())

    def _hear_outside(
        self, ratio: NDArray[np.float64], deviation: NDArray[np.float64], impatient: _Replicas
    ) -> bool:
        """Take in an iteration in which something is unknown, new or beyond the noise."""
        known = np.isfinite(ratio) & (ratio > 0.0)
        high = known & (deviation > self._band)  # never where the level is not known yet
        low = known & (deviation < -self._band)
        jumped = self._jump(ratio, known, high, low, impatient)
        within = np.flatnonzero(known & ~high & ~low)
        self._windows.enter(within, ratio[within])
        self._anything_aside = bool((self._above + self._below).any())
        return jumped

    def _jump(
        self,
        ratio: NDArray[np.float64],
        known: _Replicas,
        high: _Replicas,
        low: _Replicas,
        impatient: _Replicas,
    ) -> bool:
        """Start anew where enough iterations in a row lie on the same side."""
        self._above = np.where(high, self._above + 1, np.where(known, 0, self._above))
        self._below = np.where(low, self._below + 1, np.where(known, 0, self._below))
        up = high & (self._above >= self._damping.confirmations())
        down = low & (impatient | (self._below >= CONFIRMATIONS))
        jumped = up | down
        self._damping.remember(up, down)
        self._restart(np.flatnonzero(jumped), ratio, alone=self._above + self._below == 1)
        self._aside = np.where((high | low) & ~jumped, ratio, self._aside)
        return bool(jumped.any())

    def _restart(self, who: NDArray[np.intp], ratio: NDArray[np.float64], *, alone: _Replicas) -> None:
        """Forget what was before, except for the iteration that announced the change."""
        self._windows.forget(who)
        announced = who[~alone[who]]
        self._windows.enter(announced, self._aside[announced])
        self._windows.enter(who, ratio[who])
        self._above[who] = 0
        self._below[who] = 0

    def _review(self, *, now: bool, every: int) -> bool:
        """Take the medians anew: at once after a change or while windows fill, else every few iterations."""
        self._unreviewed += 1
        if self._unreviewed < every and not now and self._windows.full:
            return False
        self._unreviewed = 0
        self._in_a_row[:] = 0
        self.level, spread = self._windows.median()
        self.count = self._windows.count
        sure = self.sure
        self._pool(spread[sure])
        self.scatter = np.where(sure, np.fmax(spread, self._pooled), self._pooled)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))
        self._band = self._noise()
        return True

    def _pool(self, spread: NDArray[np.float64]) -> None:
        """Learn slowly what one iteration of most replicas varies by: their middle, smoothed."""
        if len(spread):
            middle = float(np.partition(spread, len(spread) // 2)[len(spread) // 2])
            self._pooled += _LEARNED * (middle - self._pooled)

    def _noise(self) -> NDArray[np.float64]:
        return np.maximum(LEAST_JUMP, NOISE_SIGMAS * self.scatter)
