"""Temperature of a GPU as it follows the power, and the watts that a degree costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile.records import Computation, CounterTrace, Point

Points = Mapping[Computation, Point]
Reading = tuple[float, float]
"""Moment of a reading (s) and temperature (degrees C)."""

MOST_LEAKAGE = 0.1
_MOST_ROWS = 4000
_LEAST_ROWS = 40
_LEAST_RANGE_C = 2.0
_MOST_OFF_C = 0.5
"""Largest standard deviation of readings from the law: whole degrees alone leave 0.29."""
_MOST_K_PER_W = 2.0
_UNSURE = 0.3
_USUAL_PER_K = 0.001
_USUAL_ERROR_PER_K = 0.0005
_BEYOND = 4.0


@dataclass(frozen=True, slots=True)
class Thermal:
    """``tau dT/dt = ambient + resistance P - T``, as fitted; ``error`` is that of the resistance (K/W)."""

    ambient_c: float
    resistance_k_per_w: float
    error: float

    def steady_state_c(self, power_w: float) -> float:
        """The temperature at which a GPU ends that goes on at one power."""
        return self.ambient_c + self.resistance_k_per_w * power_w


def mean_thermal(several: Sequence[Thermal | None]) -> Thermal | None:
    """The mean of what GPUs of one model show; None where one shows nothing."""
    known = [one for one in several if one is not None]
    if not known or len(known) < len(several):
        return None
    error = math.hypot(*(one.error for one in known)) / len(known)
    return Thermal(fmean(t.ambient_c for t in known), fmean(t.resistance_k_per_w for t in known), error)


@dataclass(slots=True)
class ThermalHistory:
    """Temperatures of one GPU beside the energy that it had taken by then.

    A counter that begins anew, or was not watched, begins this anew: energies are differences.
    """

    rows: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def until_s(self) -> float:
        """The moment of the last reading that was taken in."""
        return self.rows[-1][0] if self.rows else math.inf

    def over(self, trace: CounterTrace, readings: Sequence[Reading]) -> None:
        """Go on through readings, as far as the counter was watched beside them."""
        if len(trace) < 2:  # noqa: PLR2004  # nothing lies between
            return
        begin_s, end_s = float(trace.time_s[0]), float(trace.time_s[-1])
        if self.rows and begin_s > self.until_s:
            self.rows.clear()
        last_s = self.rows[-1][0] if self.rows else -math.inf
        new = [one for one in readings if max(last_s, begin_s) < one[0] <= end_s]
        if not new:
            return
        times_s = [new[0][0] if not self.rows else last_s, *(at_s for at_s, _ in new)]
        spent_j = np.interp(times_s, trace.time_s, trace.energy_j)
        spent_j += (self.rows[-1][1] if self.rows else 0.0) - spent_j[0]
        self.rows += [(at_s, j, read_c) for (at_s, read_c), j in zip(new, spent_j[1:].tolist(), strict=True)]
        del self.rows[:-_MOST_ROWS]

    def thermal(self) -> Thermal | None:
        """Fit the law of heat; None where too little moved, or what moved is no law of heat.

        Integrated over time it is linear in what is not known: T(t) = T(0) + a t + b E(t) - c S(t), with S
        the integral of T.
        """
        if len(self.rows) < _LEAST_ROWS:
            return None
        time_s, energy_j, read_c = np.array(self.rows).T
        if np.ptp(read_c) < _LEAST_RANGE_C:
            return None
        passed_s, spent_j = time_s - time_s[0], energy_j - energy_j[0]
        degree_seconds = np.concatenate([[0.0], np.cumsum(np.diff(time_s) * (read_c[1:] + read_c[:-1]) / 2)])
        columns = np.column_stack([np.ones_like(passed_s), passed_s, spent_j, -degree_seconds])
        return _thermal_of(columns, read_c)


def _thermal_of(columns: NDArray[np.float64], read_c: NDArray[np.float64]) -> Thermal | None:
    scale = np.linalg.norm(columns, axis=0)
    if not scale.all():
        return None
    found, _, rank, _ = np.linalg.lstsq(columns / scale, read_c, rcond=None)
    _, drift, per_j, per_s = (found / scale).tolist()
    if rank < columns.shape[1] or per_s <= 0.0 or per_j <= 0.0:
        return None
    freedom = len(read_c) - columns.shape[1]
    variance = float(((columns / scale @ found - read_c) ** 2).sum()) / freedom
    if variance > _MOST_OFF_C**2:
        return None
    covariance = variance * np.linalg.inv((columns / scale).T @ (columns / scale)) / np.outer(scale, scale)
    resistance = per_j / per_s
    by = np.array([0.0, 0.0, 1.0 / per_s, -resistance / per_s])
    error = math.sqrt(max(0.0, float(by @ covariance @ by)))
    if resistance > _MOST_K_PER_W or error > _UNSURE * resistance:
        return None
    return Thermal(drift / per_s, resistance, error)


def fit_power_per_kelvin(warm: Points, cool: Points) -> tuple[float, float] | None:
    """Compare the powers of the same computations at one clock and two temperatures.

    Return the watts that a GPU takes more for every degree that it is warmer, and their standard error. What
    the comparison shows is weighted with what is known of such parts, 0.1 % of their power per degree. None
    where temperatures are missing, or where powers contradict them by more than `_BEYOND` errors.

    Source: 0.26 to 0.35 W/K of an A100 at 300 to 400 W (one public log).
    """
    both = [(warm[key], cool[key]) for key in warm.keys() & cool.keys()]
    power_w = sum(one.energy_j for one, _ in both) / max(sum(one.time_s for one, _ in both), 1e-9)
    if not both or not power_w:
        return None
    seen, weights = 0.0, 0.0
    for one, other in both:
        if one.temperature_c is None or other.temperature_c is None:
            return None
        cooler_k = one.temperature_c - other.temperature_c
        spared_w = one.energy_j / one.time_s - other.energy_j / other.time_s
        error_w = math.hypot(one.energy_se_j / one.time_s, other.energy_se_j / other.time_s)
        weight = 1.0 / max(error_w, 1e-6 * power_w) ** 2
        seen, weights = seen + weight * cooler_k * spared_w, weights + weight * cooler_k**2
    usual, usual_error = _USUAL_PER_K * power_w, _USUAL_ERROR_PER_K * power_w
    if weights and abs(seen / weights - usual) > _BEYOND * math.hypot(usual_error, weights**-0.5):
        return None
    sure = 1.0 / usual_error**2
    return (seen + sure * usual) / (weights + sure), (weights + sure) ** -0.5


@dataclass(frozen=True, slots=True)
class TemperatureCorrection:
    """Correction of the powers of a sweep's windows to the temperature of default clocks.

    ``steady_state_c`` is that temperature, of every computation's GPUs. ``leakage`` is how many watts more a
    GPU takes for every watt that it took before, ``leakage_se`` its standard error.
    """

    leakage: float
    leakage_se: float
    w_per_k: float
    steady_state_c: Mapping[Computation, float]

    def power_correction_w(self, key: Computation, point: Point) -> float:
        """The watts that a computation would take more; 0 where its temperature is not known."""
        if point.temperature_c is None or key not in self.steady_state_c:
            return 0.0
        return self.w_per_k * (self.steady_state_c[key] - point.temperature_c)

    def blocking_w(self, points: Points) -> float:
        """The same of GPUs that wait, which are those that compute."""
        missing = [self.power_correction_w(key, point) for key, point in points.items()]
        return sum(missing) / len(missing) if missing else 0.0


NO_CORRECTION = TemperatureCorrection(0.0, 0.0, 0.0, {})
"""No correction, for where nobody read a temperature."""


def temperature_correction(
    warm: Points, cool: Points, *, thermal: Thermal | None, steady_state_c: Mapping[Computation, float]
) -> TemperatureCorrection | None:
    """Join what temperatures show; None where they show nothing, or nothing that can be.

    ``warm`` and ``cool`` are of one clock; ``steady_state_c`` is where the GPUs would have ended at the power
    of the ``cool`` window. At that temperature they take more, and end a little higher.
    """
    kappa = fit_power_per_kelvin(warm, cool)
    if kappa is None or thermal is None or not cool.keys() <= steady_state_c.keys():
        return None
    w_per_k, kappa_error = kappa
    share = min(max(w_per_k * thermal.resistance_k_per_w, 0.0), MOST_LEAKAGE)
    error = math.hypot(kappa_error * thermal.resistance_k_per_w, thermal.error * w_per_k)
    ends_c = {
        key: point.temperature_c + (steady_state_c[key] - point.temperature_c) / (1.0 - share)
        for key, point in cool.items()
        if point.temperature_c is not None
    }
    return TemperatureCorrection(share, min(error, MOST_LEAKAGE), w_per_k, ends_c)
