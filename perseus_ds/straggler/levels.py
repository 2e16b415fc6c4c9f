"""How slow every replica is against its own plan: a running median that jumps when iterations agree."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.scatter import Scatter
from perseus_ds.straggler.tuning import (
    CALM,
    CONFIRMATIONS,
    LEAST_JUMP,
    MOST_CONFIRMATIONS,
    NOISE_SIGMAS,
    REVIEW_EVERY,
    SHORT_SPELL,
    WINDOW,
)
from perseus_ds.straggler.window import Windows

_Replicas = NDArray[np.bool_]
_AHEAD = 1.25  # from the middle of a window to its end and 2 iterations on, in half windows


class Levels:
    """Measured by planned duration of every replica, robustly.

    What lies within the noise moves the median. What lies beyond it is set aside: alone it was a hiccup
    and is dropped; ``CONFIRMATIONS`` in a row are a new level, and the median starts anew from them. A
    replica that turns slow for short spells again and again has to confirm it longer.

    Shape: vectors [replicas]; ``level`` is NaN before the first known iteration.
    """

    def __init__(self, replicas: int) -> None:
        self.level = np.full(replicas, np.nan)
        self._windows = Windows(replicas)
        self._scatter = Scatter(replicas)
        self._above = np.zeros(replicas, dtype=np.int64)
        self._below = np.zeros(replicas, dtype=np.int64)
        self._aside = np.full(replicas, np.nan)
        self._since_jump = np.full(replicas, CALM, dtype=np.int64)
        self._short_spells = np.zeros(replicas, dtype=np.int64)
        self._unreviewed = 0

    @property
    def count(self) -> NDArray[np.int64]:
        """How many iterations each level rests on."""
        return self._windows.count

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    @property
    def scatter(self) -> NDArray[np.float64]:
        """Relative standard deviation of one iteration, as seen."""
        return self._scatter.each

    @property
    def error(self) -> NDArray[np.float64]:
        """Relative standard error of each level: that of a median."""
        return 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def hear(self, ratio: NDArray[np.float64], *, impatient: _Replicas) -> bool:
        """Take in one iteration; return whether a level moved.

        ``impatient`` marks replicas of whom one faster iteration is enough: those that others wait for.
        """
        self._since_jump += 1
        known = np.isfinite(ratio)
        if not known.any():
            return False
        deviation = np.where(known, ratio / self.level - 1.0, np.nan)
        band = np.maximum(LEAST_JUMP, NOISE_SIGMAS * self.scatter)
        high, low = deviation > band, deviation < -band  # never where the level is not known yet
        jumped = self._jump(ratio, known, high, low, impatient)
        within = np.flatnonzero(known & ~high & ~low)
        self._windows.enter(within, ratio[within])
        self._scatter.hear(deviation[within])
        return self._review(now=jumped)

    def sinking(self, who: NDArray[np.intp]) -> NDArray[np.float64]:
        """How far below their median some replicas are by now if they become faster bit by bit; 0 or less.

        A median is half a window behind, and what is decided is played a few iterations later.
        """
        change = self._windows.drift(who)
        noise = 1.4 * 1.25 * self.scatter[who] * math.sqrt(2.0 / (WINDOW // 2))
        return np.where(change < -noise, _AHEAD * change, 0.0)

    def _jump(
        self,
        ratio: NDArray[np.float64],
        known: _Replicas,
        high: _Replicas,
        low: _Replicas,
        impatient: _Replicas,
    ) -> bool:
        """Start anew where enough iterations in a row lie on the same side."""
        outside = high | low
        if not outside.any() and not (self._above.any() or self._below.any()):
            return False
        self._above = np.where(high, self._above + 1, np.where(known, 0, self._above))
        self._below = np.where(low, self._below + 1, np.where(known, 0, self._below))
        up = high & (self._above >= self._confirmations())
        down = low & (impatient | (self._below >= CONFIRMATIONS))
        self._remember_spells(up, down)
        self._restart(np.flatnonzero(up | down), ratio, alone=self._above + self._below == 1)
        self._aside = np.where(outside & ~(up | down), ratio, self._aside)
        return bool(up.any() or down.any())

    def _restart(self, who: NDArray[np.intp], ratio: NDArray[np.float64], *, alone: _Replicas) -> None:
        """Forget what was before, except for the iteration that announced the change."""
        self._windows.forget(who)
        announced = who[~alone[who]]
        self._windows.enter(announced, self._aside[announced])
        self._windows.enter(who, ratio[who])
        self._above[who] = 0
        self._below[who] = 0

    def _confirmations(self) -> NDArray[np.int64]:
        """Four times as many for every short spell after the first, which is forgiven."""
        exponent = np.clip(self._short_spells - 1, 0, 8)
        return np.minimum(CONFIRMATIONS * 4**exponent, MOST_CONFIRMATIONS)

    def _remember_spells(self, up: _Replicas, down: _Replicas) -> None:
        self._short_spells[down & (self._since_jump < SHORT_SPELL)] += 1
        calm = up & (self._since_jump >= CALM)
        self._short_spells[calm] = 0
        self._since_jump[up] = 0

    def _review(self, *, now: bool) -> bool:
        """Take the medians anew: at once after a jump or while windows fill, else every few iterations."""
        self._unreviewed += 1
        if not now and self._unreviewed < REVIEW_EVERY and self._windows.least >= WINDOW:
            return False
        self._unreviewed = 0
        self.level, spread = self._windows.median()
        self._scatter.review(spread, self._windows.count)
        return True
