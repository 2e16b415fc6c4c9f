"""Kernels on a simulated GPU: a roofline over core and memory clock, and the power that goes with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from perseus_ds.device.simulated.models import GpuModel, interpolate
from perseus_ds.device.simulated.physics import switching

_HELD_WITHIN_MHZ = 0.01
_REMEMBERED = 1 << 16


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
        """Duration at the maximum clock and the default memory clock, held."""
        return _joined(self.core_s, self.memory_s, self.overlap)

    def scaled(self, factor: float) -> KernelWork:
        """The same kernel, more or fewer launches."""
        return replace(self, core_s=self.core_s * factor, memory_s=self.memory_s * factor)


@lru_cache(maxsize=_REMEMBERED)
def kernel_rate(model: GpuModel, clock_mhz: float, memory_mhz: float, work: KernelWork) -> float:
    """How fast a kernel proceeds, against maximum core and default memory clock."""
    core_s, memory_s = _stretched(model, clock_mhz, memory_mhz, work)
    return work.seconds / _joined(core_s, memory_s, work.overlap)


@lru_cache(maxsize=_REMEMBERED)
def kernel_power_w(model: GpuModel, clock_mhz: float, memory_mhz: float, work: KernelWork) -> float:
    """Power while a kernel runs, at the reference temperature.

    Cores that wait for memory still draw a part of what busy ones do; memory draws power by its clock, and
    more by its traffic.
    """
    core_s, memory_s = _stretched(model, clock_mhz, memory_mhz, work)
    seconds = _joined(core_s, memory_s, work.overlap)
    roofline = model.roofline
    busy = core_s / seconds
    activity = work.occupancy * (work.intensity * busy + roofline.stalled_activity * (1.0 - busy))
    traffic_w = roofline.traffic_w * memory_mhz / model.memory_clocks_mhz[0] * memory_s / seconds
    blocking_w = interpolate(model.blocking_w, clock_mhz) - memory_saving_w(model, memory_mhz)
    return blocking_w + activity * model.dynamic_w * switching(model, clock_mhz) + traffic_w


@lru_cache(maxsize=_REMEMBERED)
def kernel_held_mhz(
    model: GpuModel, clock_mhz: float, memory_mhz: float, work: KernelWork, power_cap_w: float
) -> float:
    """The core clock that the power cap allows on average, the same whatever more was asked for."""
    if kernel_power_w(model, clock_mhz, memory_mhz, work) <= power_cap_w:
        return float(clock_mhz)
    low_mhz, high_mhz = float(model.clocks_mhz[-1]), float(model.max_clock_mhz)
    while high_mhz - low_mhz > _HELD_WITHIN_MHZ:
        middle_mhz = (low_mhz + high_mhz) / 2
        if kernel_power_w(model, middle_mhz, memory_mhz, work) <= power_cap_w:
            low_mhz = middle_mhz
        else:
            high_mhz = middle_mhz
    return low_mhz


def kernel_cost(
    model: GpuModel, clock_mhz: float, memory_mhz: float, work: KernelWork
) -> tuple[float, float]:
    """True duration and energy at a pair of clocks, under the model's own cap, without noise."""
    held_mhz = kernel_held_mhz(model, clock_mhz, memory_mhz, work, model.power_cap_w)
    seconds = work.seconds / kernel_rate(model, held_mhz, memory_mhz, work)
    return seconds, seconds * kernel_power_w(model, held_mhz, memory_mhz, work)


def memory_saving_w(model: GpuModel, memory_mhz: float) -> float:
    """What a lower memory clock saves, whatever runs."""
    table = model.roofline.memory_w
    return interpolate(table, model.memory_clocks_mhz[0]) - interpolate(table, memory_mhz)


def _stretched(model: GpuModel, clock_mhz: float, memory_mhz: float, work: KernelWork) -> tuple[float, float]:
    core_s = work.core_s * model.max_clock_mhz / clock_mhz
    return core_s, work.memory_s * model.memory_clocks_mhz[0] / memory_mhz


def _joined(core_s: float, memory_s: float, overlap: float) -> float:
    longer, shorter = max(core_s, memory_s), min(core_s, memory_s)
    return float(longer * (1.0 + (shorter / longer) ** overlap) ** (1.0 / overlap))
