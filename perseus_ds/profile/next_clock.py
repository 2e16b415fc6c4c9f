"""Which clock a sweep measures next: the one at which its curves are least known; none once they are known.

Called by the runtime after every window, on rank 0. The first clocks are the same for every GPU. After them
the curves of `profile.curves` state by how much a plan's energy may be off at each clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perseus_ds.profile.curves.offered import place_mhz
from perseus_ds.profile.curves.regression import Floats
from perseus_ds.profile.curves.smoothing import FEWEST_POINTS, smoothed
from perseus_ds.profile.record import Computation, Point, Profile

MOST_CLOCKS = 8
"""Clocks of a sweep where no other number is set."""
_FIRST = (1.0, 0.78, 0.5, 0.89)
"""Places of the first clocks, in parts of the highest that holds. The lowest worth measuring is one.

Who waits anyway takes the clock of least energy beyond that of waiting. It lies below the one of least
energy, and no clock below those measured is planned.
"""
_FEWEST = 5
"""Clocks, whatever the curves state: plans on four lost half a percent of energy."""
_LOWEST = 0.5
"""Below, time grows faster than power falls on every part in ``facts``."""
_COARSE = 10
_APART = 0.04
_DECIDE = 8

Points = Mapping[Computation, Sequence[Point]]


@dataclass(frozen=True, slots=True)
class NextClock:
    """A clock to measure, None where enough is known; by how much the energy of plans may be off (%)."""

    clock_mhz: int | None
    error_pct: float | None = None


def next_clock(
    points: Points, asked_mhz: Sequence[int], grid_mhz: Sequence[int], *, most: int, target_error_pct: float
) -> NextClock:
    """Choose the next clock from what was measured at those that were ``asked_mhz`` so far.

    Cost: about half a second of CPU where curves are judged, from the fourth clock on.
    """
    if not asked_mhz:
        return NextClock(max(grid_mhz))
    curves = list(points.values())
    top_mhz = max(place_mhz(curve[0]) for curve in curves)
    open_mhz = _open(grid_mhz, asked_mhz, top_mhz)
    known = _known(points) if len(asked_mhz) >= FEWEST_POINTS else None
    error_pct = None if known is None else known.error_pct
    if len(asked_mhz) >= most or not open_mhz:
        return NextClock(None, error_pct)
    if len(asked_mhz) < min(len(_FIRST), most):
        place = _FIRST[len(asked_mhz)]
        return NextClock(_nearest(open_mhz, place * top_mhz))
    if known is None or (known.error_pct <= target_error_pct and len(asked_mhz) >= _FEWEST):
        return NextClock(None, error_pct)
    between = _between(open_mhz, asked_mhz, _APART * top_mhz)
    return NextClock(max(between, key=lambda mhz: (known.at(mhz), mhz)), error_pct)


def _open(grid_mhz: Sequence[int], asked_mhz: Sequence[int], top_mhz: float) -> list[int]:
    """The clocks worth measuring that were not asked so far, highest first."""
    grid = sorted(set(grid_mhz) - set(asked_mhz), reverse=True)
    return [mhz for mhz in grid if _LOWEST * max(grid_mhz) <= mhz <= top_mhz]


def _between(open_mhz: Sequence[int], asked_mhz: Sequence[int], apart_mhz: float) -> Sequence[int]:
    """The open clocks above the lowest asked one and apart from all of them, else every open one."""
    far = [mhz for mhz in open_mhz if min(abs(mhz - own) for own in asked_mhz) >= apart_mhz]
    return [mhz for mhz in far if mhz > min(asked_mhz)] or open_mhz


def usual_clocks(grid_mhz: Sequence[int], count: int) -> tuple[int, ...]:
    """Return so many clocks that a sweep would measure on a GPU that holds them all, to state its cost."""
    top_mhz = max(grid_mhz)
    places = [*_FIRST, *np.linspace(_FIRST[0], _LOWEST, max(0, count - len(_FIRST)) + 2)[1:-1]]
    return tuple(_nearest(grid_mhz, place * top_mhz) for place in places[:count])


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """By what share the energy of all computations may be off at each clock.

    ``error_pct`` is that of a plan which uses all of them alike: errors at its clocks partly cancel.

    Shape: ``clock_mhz``, ``share`` [clocks], rising.
    """

    clock_mhz: Floats
    share: Floats
    error_pct: float

    def at(self, clock_mhz: int) -> float:
        return float(np.interp(clock_mhz, self.clock_mhz, self.share))


def _known(points: Points) -> _Known | None:
    """Predict the curves at clocks between those measured, and add up what is unknown of their energies."""
    keys = [key for key, own in points.items() if len(own) >= FEWEST_POINTS]
    if not keys:
        return None
    some = [keys[round(at)] for at in np.linspace(0, len(keys) - 1, min(_DECIDE, len(keys)))]
    own = {key: tuple(points[key]) for key in dict.fromkeys(some)}
    reached = sorted({place_mhz(point) for curve in own.values() for point in curve})
    coarse = np.linspace(reached[0], reached[-1], _COARSE + 2)[1:-1].round().astype(int)
    found = smoothed(Profile(own, grid_mhz=tuple(coarse.tolist())))
    if not found.errors:
        return None
    total_j, off_j2, mean_j2 = np.zeros(_COARSE), np.zeros(_COARSE), 0.0
    for key, errors in found.errors.items():
        curve = found.of(*key)
        place = [place_mhz(point) for point in reversed(curve)]
        all_j = np.array([point.energy_j for point in curve])
        energy_j = np.interp(coarse, place, all_j[::-1])
        share = np.interp(coarse, place, errors.shares()[1][::-1])
        total_j, off_j2 = total_j + energy_j, off_j2 + (share * energy_j) ** 2
        mean_j2 += float(np.sum((all_j @ errors.energy / len(curve)) ** 2))
    more = len(keys) / len(some)
    error_pct = 100.0 * float(np.sqrt(mean_j2 / more) / total_j.mean())
    return _Known(coarse.astype(float), np.sqrt(off_j2 / more) / total_j, error_pct)


def _nearest(clocks_mhz: Sequence[int], wanted_mhz: float) -> int:
    return min(clocks_mhz, key=lambda mhz: (abs(mhz - wanted_mhz), -mhz))


def filed(points: Sequence[Point], grid_mhz: Sequence[int]) -> tuple[Point, ...]:
    """File points that were held down under the clock that was reached; the first, highest one stays.

    A clock that does not hold is no clock for a plan. Where a clock was measured itself, that counts alone.
    """
    found = {points[0].clock_mhz: points[0]}
    moved = []
    for point in points[1:]:
        if place_mhz(point) == point.clock_mhz:
            found[point.clock_mhz] = point
        else:
            moved.append(point)
    for point in moved:
        clock_mhz = _nearest(grid_mhz, place_mhz(point))
        found.setdefault(clock_mhz, replace(point, clock_mhz=clock_mhz))
    return tuple(found[mhz] for mhz in sorted(found, reverse=True))
