"""Less noise before the choice: every measurement drawn towards what its neighbours state.

Time and power of one kernel are smooth in the two clocks; measurements are not. A low-order surface is
fitted to a class's points, and each point is drawn towards it by the share of its departure that noise
explains: all the way where the surface fits within the noise, hardly where the surface is wrong.

Source: Efron and Morris 1973, shrinkage towards a regression surface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.solver.problem import Floats

_FEWEST_SPARE = 3


def smoothed(profile: KernelProfile) -> KernelProfile:
    """Draw every first measurement towards its class's surface; a class with few points stays as it is."""
    return replace(profile, points={kernel: _smooth(points) for kernel, points in profile.points.items()})


def _smooth(points: Sequence[KernelPoint]) -> tuple[KernelPoint, ...]:
    if not any(point.time_se_s or point.energy_se_j for point in points):
        return tuple(points)
    terms = _terms(points)
    time_s = np.array([point.time_s for point in points])
    energy_j = np.array([point.energy_j for point in points])
    time_se = np.array([point.time_se_s for point in points]) / time_s
    energy_se = np.array([point.energy_se_j for point in points]) / energy_j
    log_time = _drawn(terms, np.log(time_s), time_se)
    log_energy = _drawn(terms, np.log(energy_j), energy_se)
    return tuple(
        replace(point, time_s=float(np.exp(t)), energy_j=float(np.exp(e)))
        for point, t, e in zip(points, log_time, log_energy, strict=True)
    )


def _terms(points: Sequence[KernelPoint]) -> Floats:
    """Cubic in core period, quadratic in memory period, crossed; a clock left to the device has its own term.

    Shape: [points, terms].
    """
    core, core_auto = _periods([point.pair.clock_mhz for point in points])
    memory, memory_auto = _periods([point.pair.memory_mhz for point in points])
    one = np.ones(len(points))
    columns = [one, core, core**2, core**3, memory, memory**2, core * memory, core_auto, memory_auto]
    return np.stack(columns, axis=1)


def _periods(clocks_mhz: Sequence[int | None]) -> tuple[Floats, Floats]:
    """Clock periods against that of the highest clock, in logarithms, and where the device chooses."""
    highest = max((mhz for mhz in clocks_mhz if mhz is not None), default=1)
    period = np.array([0.0 if mhz is None else np.log(highest / mhz) for mhz in clocks_mhz])
    return period, np.array([1.0 if mhz is None else 0.0 for mhz in clocks_mhz])


def _drawn(terms: Floats, values: Floats, noise: Floats) -> Floats:
    """Draw ``values`` towards their least-squares surface by the part of the misfit that is noise."""
    solved, _, rank, _ = np.linalg.lstsq(terms, values, rcond=None)
    spare = len(values) - int(rank)
    if spare < _FEWEST_SPARE or not noise.any():
        return values
    misfit = values - terms @ solved
    explained = float((noise**2).mean()) * spare / float((misfit**2).sum() or np.inf)
    drawn: Floats = values - min(1.0, explained) * misfit
    return drawn
