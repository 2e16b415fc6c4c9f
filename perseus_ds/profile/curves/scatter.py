"""How far a profile's points scatter around smooth curves, where it states no errors of its own."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile.record import Profile

FEWEST_POINTS = 4
"""Clocks that a curve needs for its points' scatter to be reported from its shape."""
ENOUGH_POINTS = 8
"""Clocks from which on a true kink of a curve no longer counts as scatter."""
NORMAL = 0.6745
"""The median of the size of a standard normal number."""

Floats = NDArray[np.float64]


def scatters(profile: Profile) -> tuple[float, float] | None:
    """Return the scatter of time and of energy around smooth curves; None where no curve has the points.

    A file that states neither errors nor how often it measured is judged by few points as well: those of so
    few clocks that are too good by chance would otherwise make the plan that loses no time lose some.
    """
    single = all(point.samples <= 1 for own in profile.points.values() for point in own)
    fewest = FEWEST_POINTS if single else ENOUGH_POINTS
    curves = [profile.of(*key) for key, own in profile.points.items() if len(own) >= fewest]
    if not curves:
        return None
    clocks = [np.array([p.clock_mhz for p in curve], np.float64) for curve in curves]
    times = [np.array([p.time_s for p in curve]) for curve in curves]
    energies = [np.array([p.energy_j for p in curve]) for curve in curves]
    return _scatter(clocks, times), _scatter(clocks, energies)


def _scatter(clocks_mhz: list[Floats], values: list[Floats]) -> float:
    """Standard deviation of a point, as a share of it, around the parabola of its neighbours.

    Four points beside each other have one combination that is zero on every parabola in 1/clock. Its
    median size is that of noise: a kink in the curve (a power cap) does not count.
    """
    found = [
        abs(float(_contrast(*clock[at : at + 4].tolist()) @ (value[at : at + 4] / value[at : at + 4].mean())))
        for clock, value in zip(clocks_mhz, values, strict=True)
        for at in range(len(clock) - 3)
    ]
    return float(np.median(found)) / NORMAL


@cache
def _contrast(*clocks_mhz: float) -> Floats:
    """Weights of length one that are orthogonal to all parabolas in 1/clock over four clocks."""
    places = 1.0 / np.array(clocks_mhz)
    centred = (places - places.mean()) / np.ptp(places)
    return np.asarray(np.linalg.svd(np.vander(centred, 3).T)[2][-1])
