"""The physics of a GPU as pure functions of model, clock and work: speed, power, heat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from perseus_ds.device.simulated.models import GpuModel, interpolate


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one instruction on a GPU: an amount of computation.

    ``seconds`` is its duration at the maximum clock, held. ``memory_bound`` is the fraction of that which
    does not follow the core clock. ``intensity`` is its dynamic power over that of the densest kernels.
    """

    seconds: float
    memory_bound: float = 0.05
    intensity: float = 0.85

    def times(self, factor: float) -> Work:
        return replace(self, seconds=self.seconds * factor)

    def rate(self, model: GpuModel, clock_mhz: float, memory_mhz: float) -> float:
        """Return how fast it proceeds, against the maximum clock: ``1 / ((1 - m) f_max / f + m)``."""
        del memory_mhz
        return 1.0 / ((1.0 - self.memory_bound) * model.max_clock_mhz / clock_mhz + self.memory_bound)

    def power_w(self, model: GpuModel, clock_mhz: float, memory_mhz: float) -> float:
        """Power at the reference temperature; intensity 0 is a GPU that blocks."""
        dynamic_w = self.intensity * model.dynamic_w * dynamic_share(model, clock_mhz)
        return interpolate(model.blocking_w, clock_mhz) + dynamic_w - memory_saving_w(model, memory_mhz)


BLOCKED = Work(1.0, memory_bound=0.0, intensity=0.0)
"""Work of a GPU that has none: it waits inside a kernel."""

_HELD_WITHIN_MHZ = 0.01


def dynamic_share(model: GpuModel, clock_mhz: float) -> float:
    """Dynamic power against the maximum clock: ``f V^2(f)``, normalised."""
    top = model.max_clock_mhz * interpolate(model.voltage_squared, model.max_clock_mhz)
    return clock_mhz * interpolate(model.voltage_squared, clock_mhz) / top


def memory_saving_w(model: GpuModel, memory_mhz: float) -> float:
    """Return what a lower memory clock saves, whatever runs."""
    table = model.roofline.memory_w
    return interpolate(table, model.memory_clocks_mhz[0]) - interpolate(table, memory_mhz)


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


# Kernels on a simulated GPU: a roofline over core and memory clock, and the power that goes with it.


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Some launches of one kernel.

    ``core_s`` is how long the cores need for it at the maximum clock, ``memory_s`` how long the memory
    needs at the default memory clock. The two overlap, the better the higher ``overlap`` is: at 1 they add
    up, at infinity the longer one counts alone. ``intensity`` is the dynamic power of busy cores over that
    of the densest kernels, ``occupancy`` the part of the cores that has anything to do.
    """

    core_s: float
    memory_s: float
    intensity: float = 0.85
    overlap: float = 6.0
    occupancy: float = 1.0

    @property
    def seconds(self) -> float:
        return self._overlapped_s(self.core_s, self.memory_s)

    def times(self, factor: float) -> KernelWork:
        return replace(self, core_s=self.core_s * factor, memory_s=self.memory_s * factor)

    def rate(self, model: GpuModel, clock_mhz: float, memory_mhz: float) -> float:
        """Return how fast it proceeds, against maximum core and default memory clock."""
        return self.seconds / self._overlapped_s(*self._parts_s(model, clock_mhz, memory_mhz))

    def power_w(self, model: GpuModel, clock_mhz: float, memory_mhz: float) -> float:
        """Power at the reference temperature.

        Cores that wait for memory still draw a part of what busy ones do; memory draws power by its clock,
        and more by its traffic.
        """
        core_s, memory_s = self._parts_s(model, clock_mhz, memory_mhz)
        seconds = self._overlapped_s(core_s, memory_s)
        roofline = model.roofline
        busy = core_s / seconds
        activity = self.occupancy * (self.intensity * busy + roofline.stalled_activity * (1.0 - busy))
        traffic_w = roofline.traffic_w * memory_mhz / model.memory_clocks_mhz[0] * memory_s / seconds
        blocking_w = interpolate(model.blocking_w, clock_mhz) - memory_saving_w(model, memory_mhz)
        return blocking_w + activity * model.dynamic_w * dynamic_share(model, clock_mhz) + traffic_w

    def _parts_s(self, model: GpuModel, clock_mhz: float, memory_mhz: float) -> tuple[float, float]:
        core_s = self.core_s * model.max_clock_mhz / clock_mhz
        return core_s, self.memory_s * model.memory_clocks_mhz[0] / memory_mhz

    def _overlapped_s(self, core_s: float, memory_s: float) -> float:
        longer, shorter = max(core_s, memory_s), min(core_s, memory_s)
        return float(longer * (1.0 + (shorter / longer) ** self.overlap) ** (1.0 / self.overlap))


# Speed, power and held clock of whatever runs, at both clocks.

AnyWork = Work | KernelWork
_REMEMBERED = 1 << 16


@lru_cache(maxsize=_REMEMBERED)
def rate(model: GpuModel, clock_mhz: float, memory_mhz: float, work: AnyWork) -> float:
    """Return how fast work proceeds, against maximum core and default memory clock."""
    return work.rate(model, clock_mhz, memory_mhz)


@lru_cache(maxsize=_REMEMBERED)
def power_w(model: GpuModel, clock_mhz: float, memory_mhz: float, work: AnyWork) -> float:
    """Power while work runs, at the reference temperature."""
    return work.power_w(model, clock_mhz, memory_mhz)


@lru_cache(maxsize=_REMEMBERED)
def held_mhz(
    model: GpuModel, clock_mhz: float, memory_mhz: float, work: AnyWork, power_cap_w: float
) -> float:
    """The core clock that is held on average under the power cap, at most the one asked for.

    A capped GPU dithers between neighbouring clocks, so the average lies between grid points, the same
    one whatever was asked for. The cap acts on power at the reference temperature.
    """
    if power_w(model, clock_mhz, memory_mhz, work) <= power_cap_w:
        return float(clock_mhz)
    low_mhz, high_mhz = float(model.clocks_mhz[-1]), float(model.max_clock_mhz)
    while high_mhz - low_mhz > _HELD_WITHIN_MHZ:
        middle_mhz = (low_mhz + high_mhz) / 2
        if work.power_w(model, middle_mhz, memory_mhz) <= power_cap_w:
            low_mhz = middle_mhz
        else:
            high_mhz = middle_mhz
    return low_mhz


def duration_s(model: GpuModel, clock_mhz: int, work: AnyWork, memory_mhz: int | None = None) -> float:
    """Return how long work takes at its clocks, under the model's own power cap, without noise."""
    memory_mhz = memory_mhz or model.memory_clocks_mhz[0]
    held = held_mhz(model, clock_mhz, memory_mhz, work, model.power_cap_w)
    return work.seconds / rate(model, held, memory_mhz, work)


def energy_j(model: GpuModel, clock_mhz: int, work: AnyWork, memory_mhz: int | None = None) -> float:
    """Return what work costs at its clocks, at the reference temperature."""
    memory_mhz = memory_mhz or model.memory_clocks_mhz[0]
    held = held_mhz(model, clock_mhz, memory_mhz, work, model.power_cap_w)
    return power_w(model, held, memory_mhz, work) * duration_s(model, clock_mhz, work, memory_mhz)


# Kernels one behind the other: what an instruction is made of, where a simulated GPU knows its kernels.


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Kernels in the order of their launch, each ``factor`` times as long as it states.

    The kernels themselves stay the same whatever the factor: what they take at a pair of clocks is looked up.
    """

    kernels: tuple[KernelWork, ...]
    factor: float = 1.0

    @property
    def seconds(self) -> float:
        return self.factor * sum(kernel.seconds for kernel in self.kernels)

    def times(self, factor: float) -> KernelSequence:
        return replace(self, factor=self.factor * factor)


def pieces(work: AnyWork | KernelSequence) -> Iterator[tuple[AnyWork, float]]:
    """Yield what is done in turn, with its duration at the maximum clock; alike neighbours are one.

    ``Work`` is yielded as a second of it: whatever its noise, its held clock is looked up.
    """
    if not isinstance(work, KernelSequence):
        yield (replace(work, seconds=1.0) if isinstance(work, Work) else work), work.seconds
        return
    present, seconds = work.kernels[0], 0.0
    for kernel in work.kernels:
        if kernel != present:
            yield present, seconds
            present, seconds = kernel, 0.0
        seconds += work.factor * kernel.seconds
    yield present, seconds
