"""Clocks that were not measured, put between those that were: their points are left to the curves.

Used by `profile.curves.smoothing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.gpu import is_held
from perseus_ds.profile.curves.regression import Floats
from perseus_ds.profile.record import Point

MOST_POINTS = 32
"""Of a curve: between so many clocks a plan splits computations at no loss, and more cost time."""
UNKNOWN = 1e3
"""Error of a point that was not measured, as a share of it: any value is as likely."""


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """A curve's points, measured and not, highest clock first; ``measured`` are the places of the former."""

    points: tuple[Point, ...]
    measured: NDArray[np.bool_]

    def spread(self, shares: Floats) -> Floats:
        """Errors of all points from those of the measured ones. Shape: [measured] to [points]."""
        found = np.full(len(self.points), UNKNOWN)
        found[self.measured] = shares
        return found


def with_offered(points: Sequence[Point], grid_mhz: Sequence[int]) -> Offered:
    """Put clocks of a grid between measured ones: no lower one, and none above what the highest reached."""
    reached = [place_mhz(point) for point in points]
    taken = {*reached, *(point.clock_mhz for point in points)}
    inside = [mhz for mhz in grid_mhz if min(reached) < mhz < reached[0] and mhz not in taken]
    count = max(0, min(len(inside), MOST_POINTS - len(points)))
    chosen = {inside[round(at)] for at in np.linspace(0, len(inside) - 1, count)}
    made = {mhz: _made_up(points, mhz) for mhz in chosen}
    measured = {point.clock_mhz: point for point in points}
    clocks = sorted({*made, *measured}, reverse=True)
    return Offered(
        tuple(measured.get(mhz) or made[mhz] for mhz in clocks), np.array([mhz in measured for mhz in clocks])
    )


def place_mhz(point: Point) -> int:
    """Return the clock that a point is of: the one reached, where the one asked for did not hold."""
    reached = point.achieved_mhz
    return point.clock_mhz if reached is None or is_held(point.clock_mhz, reached) else reached


def _made_up(points: Sequence[Point], clock_mhz: int) -> Point:
    """A point on straight lines between measured ones; its scatter is theirs."""
    place = [place_mhz(point) for point in reversed(points)]
    time_s, energy_j = (
        float(np.interp(clock_mhz, place, [getattr(point, name) for point in reversed(points)]))
        for name in ("time_s", "energy_j")
    )
    shares = [point.time_sd_s / point.time_s for point in points if point.time_sd_s is not None]
    known = len(shares) == len(points)
    sd_s = time_s * float(np.sqrt(np.mean(np.square(shares)))) if known else None
    return Point(clock_mhz, time_s, energy_j, time_sd_s=sd_s)
