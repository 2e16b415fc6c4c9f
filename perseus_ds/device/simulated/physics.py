"""The physics of a GPU as pure functions of model, clock and work: speed, power, heat."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from perseus_ds.device.simulated.models import GpuModel, interpolate


@dataclass(frozen=True, slots=True)
class Work:
    """What one instruction asks of a GPU: an amount of computation.

    ``seconds`` is its duration at the maximum clock, held. ``memory_bound`` is the fraction of that which
    does not follow the core clock. ``intensity`` is its dynamic power over that of the densest kernels.
    """

    seconds: float
    memory_bound: float = 0.05
    intensity: float = 0.85

    def scaled(self, factor: float) -> Work:
        """The same kind of work, more or less of it."""
        return replace(self, seconds=self.seconds * factor)


_HELD_WITHIN_MHZ = 0.01


def rate(model: GpuModel, clock_mhz: float, memory_bound: float) -> float:
    """How fast work proceeds, against the maximum clock: ``1 / ((1 - m) f_max / f + m)``."""
    return 1.0 / ((1.0 - memory_bound) * model.max_clock_mhz / clock_mhz + memory_bound)


def switching(model: GpuModel, clock_mhz: float) -> float:
    """Dynamic power against the maximum clock: ``f V^2(f)``, normalised."""
    top = model.max_clock_mhz * interpolate(model.voltage_squared, model.max_clock_mhz)
    return clock_mhz * interpolate(model.voltage_squared, clock_mhz) / top


def power_w(model: GpuModel, clock_mhz: float, intensity: float) -> float:
    """Power at the reference temperature; intensity 0 is a GPU that blocks."""
    blocking_w = interpolate(model.blocking_w, clock_mhz)
    return blocking_w + intensity * model.dynamic_w * switching(model, clock_mhz)


@lru_cache(maxsize=4096)
def held_clock_mhz(model: GpuModel, clock_mhz: int, intensity: float, power_cap_w: float) -> float:
    """The clock that is held on average under the power cap, at most the one asked for.

    A capped GPU dithers between neighbouring clocks, so the average lies between grid points, the same
    one whatever was asked for. The cap acts on power at the reference temperature.
    """
    if power_w(model, clock_mhz, intensity) <= power_cap_w:
        return float(clock_mhz)
    low_mhz, high_mhz = float(model.clocks_mhz[-1]), float(model.max_clock_mhz)
    while high_mhz - low_mhz > _HELD_WITHIN_MHZ:
        middle_mhz = (low_mhz + high_mhz) / 2
        if power_w(model, middle_mhz, intensity) <= power_cap_w:
            low_mhz = middle_mhz
        else:
            high_mhz = middle_mhz
    return low_mhz


def duration_s(model: GpuModel, clock_mhz: int, work: Work) -> float:
    """How long work takes at one clock, under the model's own power cap."""
    held_mhz = held_clock_mhz(model, clock_mhz, work.intensity, model.power_cap_w)
    return work.seconds / rate(model, held_mhz, work.memory_bound)


def energy_j(model: GpuModel, clock_mhz: int, work: Work) -> float:
    """What work costs at one clock, at the reference temperature."""
    held_mhz = held_clock_mhz(model, clock_mhz, work.intensity, model.power_cap_w)
    return power_w(model, held_mhz, work.intensity) * duration_s(model, clock_mhz, work)


def drift(model: GpuModel, power_w: float, temperature_c: float, elapsed_s: float) -> tuple[float, float]:
    """Energy (J) spent and temperature (deg C) reached when ``power_w`` lasts ``elapsed_s``.

    With ``P = power_w + l (T - T_ref)`` and ``tau dT/dt = T_amb + R P - T``, linear in T: an exponential
    towards a fixed point, integrated exactly, so that splitting the time changes nothing.
    """
    leak, resistance = model.leakage_w_per_k, model.thermal_k_per_w
    damping = 1.0 - resistance * leak
    fixed_c = (model.ambient_c + resistance * (power_w - leak * model.reference_c)) / damping
    tau_s = model.thermal_s / damping
    risen = -math.expm1(-elapsed_s / tau_s)
    mean_part_s = (temperature_c - fixed_c) * tau_s * risen
    spent_j = power_w * elapsed_s + leak * ((fixed_c - model.reference_c) * elapsed_s + mean_part_s)
    return spent_j, temperature_c + (fixed_c - temperature_c) * risen
