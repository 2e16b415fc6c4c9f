"""What is asked of `choose`, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.simulated.settings import SimulatedSettings


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The device that one rank wants.

    ``uuid`` or ``pci_bus_id`` is torch's own device on CUDA or HIP. Without either, ``automatic`` takes no
    GPU, and a backend that is asked for by name takes ``local_rank`` as its index. ``lock``: clocks will be
    set, not only read. ``allow_unguarded_container``: they are set even where the guard would be killed with
    its container and leave a clock locked. ``restore_clock_mhz`` is what our own guard puts back (None: the
    default).
    """

    setting: str = "automatic"
    local_rank: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    simulated: SimulatedSettings | None = None
    lock: bool = True
    allow_unguarded_container: bool = False
    restore_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The device that was opened, and why it was this one."""

    gpu: Gpu
    backend: str
    reason: str


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to reach a GPU.

    ``priority`` returns how good it would be for a request (``automatic`` takes the highest; below zero means
    never by itself). It raises `DeviceError` with the reason why it cannot work here.
    """

    name: str
    summary: str
    priority: Callable[[DeviceRequest], float]
    open_gpu: Callable[[DeviceRequest], Gpu]
