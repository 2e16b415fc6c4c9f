"""Speed, power and held clock of whatever runs, at both clocks: one door to physics and roofline."""

from __future__ import annotations

from perseus_ds.device.simulated import physics, roofline
from perseus_ds.device.simulated.models import GpuModel
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.roofline import KernelWork

AnyWork = Work | KernelWork


def rate(model: GpuModel, clock_mhz: float, memory_mhz: float, work: AnyWork | None) -> float:
    """How fast work proceeds, against maximum core and default memory clock."""
    if isinstance(work, KernelWork):
        return roofline.kernel_rate(model, clock_mhz, memory_mhz, work)
    return physics.rate(model, clock_mhz, 0.0 if work is None else work.memory_bound)


def power_w(model: GpuModel, clock_mhz: float, memory_mhz: float, work: AnyWork | None) -> float:
    """Power at the reference temperature; a GPU without work blocks."""
    if isinstance(work, KernelWork):
        return roofline.kernel_power_w(model, clock_mhz, memory_mhz, work)
    intensity = 0.0 if work is None else work.intensity
    return physics.power_w(model, clock_mhz, intensity) - roofline.memory_saving_w(model, memory_mhz)


def held_mhz(
    model: GpuModel, clock_mhz: int, memory_mhz: float, work: AnyWork | None, power_cap_w: float
) -> float:
    """The core clock that is held on average under the power cap."""
    if isinstance(work, KernelWork):
        return roofline.kernel_held_mhz(model, clock_mhz, memory_mhz, work, power_cap_w)
    intensity = 0.0 if work is None else work.intensity
    spared_w = roofline.memory_saving_w(model, memory_mhz)
    return physics.held_clock_mhz(model, clock_mhz, intensity, power_cap_w + spared_w)
