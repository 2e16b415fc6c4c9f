"""Which clock a sweep measures next: one of five places below the highest clock that holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perseus_ds.profile.curves.offered import place_mhz
from perseus_ds.profile.record import Computation, Point

PLACES = (1.0, 0.89, 0.78, 0.6, 0.5)
"""Clocks to measure, in parts of the highest that holds. The lowest worth measuring is one.

Who waits anyway takes the clock of least energy beyond that of waiting. It lies below the one of least
energy, and no clock below those measured is planned.
"""
_LOWEST = 0.5
"""Of the device's highest clock. Below, time grows faster than power falls on every part in ``facts``."""

Points = Mapping[Computation, Sequence[Point]]


def next_clock(points: Points, asked_mhz: Sequence[int], grid_mhz: Sequence[int], count: int) -> int | None:
    """Return the clock after those that were ``asked_mhz``, of ``count``; None where there are no more."""
    if not asked_mhz:
        return max(grid_mhz)
    top_mhz = max(place_mhz(curve[0]) for curve in points.values())
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
