"""How slow every replica is against its own plan: a running median, begun anew where a change is proved."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.estimate.excursions import Excursions
from perseus_ds.straggler.estimate.reference import Reference
from perseus_ds.straggler.estimate.scatter import OwnScatter, Scatter
from perseus_ds.straggler.estimate.window import Windows
from perseus_ds.straggler.tuning import (
    CALM,
    CONFIRMATIONS,
    LEAST_RECOVERY,
    LEAST_SCATTER,
    MOST_CONFIRMATIONS,
    RECOVERY_SIGMAS,
    REVIEW_EVERY,
    SHORT_SPELL,
    WINDOW,
)

_Replicas = NDArray[np.bool_]
_AHEAD = 1.25  # from the middle of a window to its end and 2 iterations on, in half windows
_MOST_SIGMAS = 3.0  # of a deviation that is learned from: a hiccup is no scatter


class SlowdownEstimate:
    """Measured by planned duration of every replica, robustly.

    Each replica's level is the median of its last iterations. It starts anew where a cumulative sum proves
    that the replica has left it: at the first of the iterations that did. A replica that turns slow for short
    spells again and again has to confirm it longer. What all do at once is nobody's slowness.

    Shape: vectors [replicas], as of the last review. ``level`` is NaN before the first known iteration,
    ``count`` how many iterations it rests on. ``scatter`` is the relative standard deviation of one iteration
    (infinite until it is known). ``error`` is the relative standard error of the level: that of a median.
    ``proved`` marks whose level was found by its having become slower.
    """

    def __init__(self, replicas: int, first_scatter: float) -> None:
        self.level = np.full(replicas, np.nan)
        self.count = np.zeros(replicas, dtype=np.int64)
        self.proved = np.zeros(replicas, dtype=np.bool_)
        self._scatter = Scatter(first_scatter)
        self.scatter = np.full(replicas, self._scatter.deviation)
        self.error = 1.25 * self.scatter
        self._own_scatter = OwnScatter(replicas)
        self._windows = Windows(replicas)
        self._damping = FlapDamping(replicas)
        self._reference = Reference(replicas)
        self._slower = Excursions(replicas)
        self._faster = Excursions(replicas)
        self._side = np.zeros(replicas)
        self._in_a_row = np.zeros(replicas, dtype=np.int64)
        self._unreviewed = 0
        self._observed = 0

    @property
    def sure(self) -> _Replicas:
        """Whose level rests on half a window at least."""
        return self.count >= WINDOW // 2

    @property
    def tells(self) -> bool:
        """Whether it is known how much iterations vary: before, nobody is judged."""
        return self._scatter.known

    def observe(self, ratio: NDArray[np.float64], *, impatient: _Replicas, review_every: int) -> bool:
        """Take in one iteration; return whether the levels were taken anew.

        What is not finite and above 0 is unknown. ``impatient`` marks replicas of whom one faster
        iteration is enough: those that others wait for.
        """
        self._damping.tick()
        known = np.isfinite(ratio) & (ratio > 0.0)
        if known.all():
            self._windows.enter_all(ratio)
        elif not known.any():
            return False
        else:
            self._windows.enter(np.flatnonzero(known), ratio[known])
        ratio = np.where(known, ratio, np.nan)
        deviation = ratio / self.level - 1.0
        jumped = self._scatter.known and self._jumped(ratio, deviation, impatient)
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

    def _jumped(
        self, ratio: NDArray[np.float64], deviation: NDArray[np.float64], impatient: _Replicas
    ) -> bool:
        """Start anew where a change is proved."""
        leaving = self._slower.begun() | self._faster.begun()
        sigmas = self._reference.sigmas(ratio, self.scatter, leaving)
        judged = np.isfinite(sigmas) & self._reference.judges
        slower = self._slower.observe(sigmas, judged)
        faster = self._faster.observe(-sigmas, judged)
        at_once = impatient & (deviation < -np.maximum(LEAST_RECOVERY, RECOVERY_SIGMAS * self.scatter))
        if not (slower or faster or at_once.any()):
            return False
        up = self._slower.alone(self._damping.confirmations())
        down = self._faster.alone(np.full(len(up), CONFIRMATIONS)) & ~impatient  # of these the drift is led
        down |= at_once
        self._damping.remember(up, down)
        lasted = np.where(up, self._slower.lasted(), self._faster.lasted())
        jumped = up | down
        for side in (self._slower, self._faster):
            if side.together():
                jumped, lasted = np.ones_like(up), np.full(len(up), side.lasted().max())
        who = jumped.nonzero()[0]
        if not len(who):
            return False
        self.proved = (self.proved & ~down) | up
        self._windows.keep_last(who, lasted[who])
        self._reference.restart(jumped, self._windows.median()[0], self._windows.count)
        self._slower.forget(jumped)
        self._faster.forget(jumped)
        return True

    def _review(self, *, now: bool, every: int) -> bool:
        """Take the medians anew: at once after a change or while windows fill, else every few iterations."""
        self._unreviewed += 1
        self._observed += 1
        if self._unreviewed < every and not now and self._windows.full:
            return False
        self._in_a_row[:] = 0
        self.level, spread = self._windows.median()
        self.count = self._windows.count
        most = _MOST_SIGMAS * max(self._scatter.deviation, LEAST_SCATTER)
        square = self._windows.square_deviation(self.level, most)
        told = self.tells
        fresh = self._unreviewed
        self._scatter.learn(square, self.count, fresh=fresh)
        if not told and self.tells:  # what was seen until now is the reference
            self._reference.restart(np.ones_like(self.proved), self.level, self.count)
        self._unreviewed = 0
        common = self._scatter.deviation
        if self._observed < WINDOW:  # no reference was there to tell two levels apart from the first on
            spread = self._windows.successive_spread(self.level)
        steady = self.sure & ~self._slower.begun() & ~self._faster.begun()  # no mixture of two levels
        self._own_scatter.learn(spread, steady, self.count, fresh=fresh)
        self.scatter = self._own_scatter.unless_common(common)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))
        return True

    def settle(self, who: _Replicas) -> None:
        """Begin anew for some that were found slow by their level alone, early, while references are learned.

        What their windows hold from before is another level and no scatter.
        """
        found = who.nonzero()[0]
        within = _MOST_SIGMAS * max(self._scatter.deviation, LEAST_SCATTER)
        lasting = self._windows.lasting(found, self.level[found], within)
        found, lasting = found[lasting >= CONFIRMATIONS], lasting[lasting >= CONFIRMATIONS]
        self._windows.keep_last(found, lasting)
        self.count = self._windows.count
        anew = np.isin(np.arange(len(who)), found)
        self._reference.restart(anew, self.level, self.count)
        self.error = 1.25 * self.scatter / np.sqrt(np.maximum(self.count, 1))

    def dismiss(self, who: _Replicas) -> None:
        """Note that some replicas, though they became slower, are no slower than the others."""
        self.proved &= ~who


class FlapDamping:
    """Memory of flapping: an answer to a spell that is over at once costs time and saves nothing.

    Shape: vectors [replicas].
    """

    def __init__(self, replicas: int) -> None:
        self._now = 0
        self._began = np.full(replicas, -CALM, dtype=np.int64)
        self._short = np.zeros(replicas, dtype=np.int64)

    def tick(self) -> None:
        """An iteration passes."""
        self._now += 1

    def confirmations(self) -> NDArray[np.int64]:
        """Slow iterations in a row that are asked for: four times as many per short spell after the first."""
        exponent = np.clip(self._short - 1, 0, 8)
        return np.minimum(CONFIRMATIONS * 4**exponent, MOST_CONFIRMATIONS)

    def remember(self, slower: NDArray[np.bool_], faster: NDArray[np.bool_]) -> None:
        """Some replicas turned slow in this iteration, some turned fast again."""
        lasted = self._now - self._began
        self._short[faster & (lasted < SHORT_SPELL)] += 1
        self._short[slower & (lasted >= CALM)] = 0
        self._began[slower] = self._now
