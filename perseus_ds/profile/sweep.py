"""Clocks that a sweep measures, and the iterations at default clocks that dilute it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perseus_ds.profile.curves import effective_clock_mhz
from perseus_ds.profile.records import Computation, Point

PLACES = (1.0, 0.89, 0.78, 0.6, 0.5)
"""Clocks to measure, in parts of the highest that holds. The lowest worth measuring is one.

Who waits anyway takes the clock of least energy beyond that of waiting. It lies below the one of least
energy, and no clock below those measured is planned.
"""
_LOWEST = 0.5
"""Of the device's highest clock. Below, time grows faster than power falls on every part in ``facts``."""

Points = Mapping[Computation, Sequence[Point]]


def slower_at(clock_mhz: int, points: Points, clocks_mhz: Sequence[int]) -> float:
    """Bound the slowdown of an iteration at a clock against the highest; ``clocks_mhz`` were measured.

    Work slows down at most as its clock does. How it slowed down so far bounds it better.
    """
    whole = [own for own in points.values() if len(own) == len(clocks_mhz)]
    if clock_mhz in clocks_mhz:
        at = clocks_mhz.index(clock_mhz)
        return max((own[at].time_s / own[0].time_s for own in whole), default=1.0)
    shares = [
        (own[at].time_s / own[0].time_s - 1.0) / (clocks_mhz[0] / clock - 1.0)
        for at, clock in enumerate(clocks_mhz)
        if clock < clocks_mhz[0]
        for own in whole
    ]
    follows = min(max(shares, default=1.0), 1.0)
    return 1.0 + max(follows, 0.0) * (clocks_mhz[0] / clock_mhz - 1.0)


def next_clock(points: Points, asked_mhz: Sequence[int], grid_mhz: Sequence[int], count: int) -> int | None:
    """Return the clock after those that were ``asked_mhz``, of ``count``; None where there are no more."""
    if not asked_mhz:
        return max(grid_mhz)
    top_mhz = max(effective_clock_mhz(curve[0]) for curve in points.values())
    below = [mhz for mhz in grid_mhz if _LOWEST * max(grid_mhz) <= mhz < min(top_mhz + 1, *asked_mhz)]
    places = _places(count)
    if len(asked_mhz) >= len(places) or not below:
        return None
    return _nearest(below, places[len(asked_mhz)] * top_mhz)


def clocks_held(grid_mhz: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the clocks that a sweep measures on a GPU that holds them all."""
    return tuple(_nearest(grid_mhz, place * max(grid_mhz)) for place in _places(count))


def _places(count: int) -> list[float]:
    """Spread fewer places over the same range."""
    count = min(count, len(PLACES))
    at = np.linspace(0, len(PLACES) - 1, count)
    return [float(place) for place in np.interp(at, range(len(PLACES)), PLACES)]


def _nearest(clocks_mhz: Sequence[int], wanted_mhz: float) -> int:
    return min(clocks_mhz, key=lambda mhz: (abs(mhz - wanted_mhz), -mhz))


def keyed_by_achieved_clock(points: Sequence[Point], grid_mhz: Sequence[int]) -> tuple[Point, ...]:
    """File points that were held down under the clock that was reached; the first, highest one stays.

    A clock that does not hold is no clock for a plan. Where a clock was measured itself, that counts alone.
    """
    found = {points[0].clock_mhz: points[0]}
    moved = []
    for point in points[1:]:
        if effective_clock_mhz(point) == point.clock_mhz:
            found[point.clock_mhz] = point
        else:
            moved.append(point)
    for point in moved:
        clock_mhz = _nearest(grid_mhz, effective_clock_mhz(point))
        found.setdefault(clock_mhz, replace(point, clock_mhz=clock_mhz))
    return tuple(found[mhz] for mhz in sorted(found, reverse=True))


# The cost of a sweep, and the iterations at default clocks that dilute it.

_LAG = 1
"""Iterations at default clocks after each window, at least: until then it is not known."""
_MINUTE_S = 60.0
_ENOUGH = 4
"""Iterations at default clocks that show what is usual."""


@dataclass(frozen=True, slots=True)
class SweepCost:
    """Duration of a sweep, and the part that is lost against the highest clock.

    Units: seconds.
    """

    duration_s: float
    lost_s: float

    @property
    def slower_pct(self) -> float:
        """Slowdown of training meanwhile."""
        rest_s = self.duration_s - self.lost_s
        return 100.0 * self.lost_s / rest_s if rest_s > 0.0 else 0.0


def in_words(time_s: float) -> str:
    """A time to wait for: seconds, from two minutes on minutes."""
    return f"{time_s:.0f} s" if time_s < 2 * _MINUTE_S else f"{time_s / _MINUTE_S:.0f} minutes"


@dataclass(frozen=True, slots=True)
class WindowLength:
    """Number of iterations of a window: so many that ``needed_s`` pass, and ``least`` at least.

    ``iteration_s`` is one of them at the highest clock. At a lower one they last longer: fewer are enough.
    """

    iteration_s: float
    needed_s: float
    least: int = 1

    def at(self, slower: float = 1.0) -> int:
        """Return how many it takes where they last ``slower`` times as long, or somewhat longer."""
        return max(self.least, math.ceil(self.needed_s / (self.iteration_s * slower) - 1e-9))


@dataclass(slots=True)
class SweepPace:
    """Iterations at default clocks before each window, so that training loses little.

    Training is slower by no more than ``most_slower_pct`` since the sweep began, at the end of any window and
    with the ``reserved`` iterations, which are at the highest clock: every sweep ends there.
    ``took_s`` is how long the ``timed`` iterations of it really took, ``rested_s`` those of them at default
    clocks, and ``rested_s2`` the sum of their squares (s^2). ``broken`` counts those of its windows that were
    not measured, since something else had run before them.

    Units: ``ran`` and ``lost`` in iterations at the highest clock, as expected.
    """

    most_slower_pct: float
    reserved: float = 0.0
    ran: float = 0.0
    lost: float = 0.0
    took_s: float = 0.0
    timed: int = 0
    rested_s: float = 0.0
    rested_s2: float = 0.0
    rested: int = 0
    broken: int = 0

    def baseline_iterations_needed(self, iterations: int, slower: float) -> int:
        """Return how many come before ``iterations`` that last ``slower`` times as long."""
        lost = self.slowdown_lower_bound + self._seen * iterations * (slower - 1.0)
        ran = self.ran + iterations + self.reserved
        return max(0, math.ceil(100.0 * lost / self.most_slower_pct - ran - 1e-9))

    def slowdown_factor(self, slower: float) -> float:
        """Return how many times as long iterations will last, by what was seen; 1 while nothing was.

        They are expected to last ``slower`` times as long, at most.
        """
        return 1.0 + self._seen * (slower - 1.0) if self.lost > 0.0 and self.rested >= _ENOUGH else 1.0

    @property
    def _seen(self) -> float:
        """Return the part of the expected loss that really was lost."""
        return self.slowdown_lower_bound / self.lost if self.lost > 0.0 else 1.0

    def expect_windows(self, windows: Iterable[tuple[int, float]]) -> None:
        """Note windows to come (iterations, slowdown), with those at default clocks before and after each."""
        for iterations, slower in windows:
            self.record_expected(self.baseline_iterations_needed(iterations, slower))
            self.record_expected(iterations, slower)
            self.record_expected(_LAG)

    def record_expected(self, iterations: int, slower: float = 1.0) -> None:
        """Note what ran."""
        self.ran += iterations
        self.lost += iterations * (slower - 1.0)

    def record_measured(self, iteration_s: float, *, resting: bool) -> None:
        """Note how long one really took; ``resting``: at default clocks."""
        self.took_s += iteration_s
        self.timed += 1
        if resting:
            self.rested_s += iteration_s
            self.rested_s2 += iteration_s**2
            self.rested += 1

    @property
    def slowdown_lower_bound(self) -> float:
        """Loss so far, as expected or, if that is less, as seen: two standard errors more.

        Work slows down less than its clock, and iterations by less than their computations.
        """
        if self.rested < _ENOUGH:
            return self.lost
        usual_s = self.rested_s / self.rested
        variance_s2 = max(0.0, self.rested_s2 / self.rested - usual_s**2) / (self.rested - 1)
        seen = self.took_s / usual_s - self.timed * (1.0 - 2.0 * math.sqrt(variance_s2) / usual_s)
        return min(self.lost, max(0.0, seen))

    def slower_pct(self, iteration_s: float) -> float:
        """Return the slowdown of training against its own iterations at default clocks.

        Where it had none, than at ``iteration_s`` an iteration: single ones differ where work varies.
        """
        if not self.timed:
            return 0.0
        usual_s = self.rested_s / self.rested if self.rested else iteration_s
        return 100.0 * (self.took_s / (self.timed * usual_s) - 1.0)


def reserved_iterations(iterations: int) -> int:
    """Count the iterations at the highest clock that end a sweep: its window, and default clocks before."""
    return _LAG + 1 + iterations + _LAG


def cost_of(
    slower: Sequence[float], *, window: WindowLength, most_slower_pct: float, settling: int = 0
) -> SweepCost:
    """Walk a sweep on paper: windows whose iterations last ``slower`` times as long, and their rests.

    The highest clock comes once more at its end; ``settling`` iterations there come first.
    """
    pace = SweepPace(most_slower_pct, reserved_iterations(window.at()))
    pace.record_expected(settling)
    pace.expect_windows((window.at(one), one) for one in slower)
    pace.record_expected(reserved_iterations(window.at()) - _LAG)
    return SweepCost((pace.ran + pace.lost) * window.iteration_s, pace.lost * window.iteration_s)
