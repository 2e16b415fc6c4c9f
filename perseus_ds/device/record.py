"""What a GPU states of itself: frozen records, the same for every backend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from itertools import pairwise


class EventReason(IntFlag):
    """Why the clock is what it is, with NVML's own bits.

    Source: nvml.h 13, ``nvmlClocksEventReason*``.
    """

    NONE = 0x0
    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100

    @property
    def spoils(self) -> bool:
        """Whether a measurement under these reasons was not taken at the requested clock."""
        return bool(self & _SPOILING)


_SPOILING = (
    EventReason.SW_POWER_CAP
    | EventReason.HW_SLOWDOWN
    | EventReason.SW_THERMAL
    | EventReason.HW_THERMAL
    | EventReason.HW_POWER_BRAKE
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device this is; ``index`` is the backend's own numbering, never CUDA's."""

    name: str
    uuid: str
    pci_bus_id: str
    driver: str
    index: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the device can do.

    ``clocks_mhz`` descends. ``why_not`` is the reason when ``can_lock`` is false. A
    ``counter_period_s`` of ``None`` means that there is no energy counter. ``switch_latency_s`` is
    call plus settle, declared or measured; ``switch_call_s`` is the part of it that the call takes.
    With ``persistence`` off a lock may silently not hold; ``None`` where there is no such mode.
    ``memory_why_not`` is why the memory clock cannot be locked, reported without trying; ``None``: it can.
    """

    clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    can_lock: bool
    why_not: str | None
    counter_period_s: float | None
    switch_latency_s: float
    switch_call_s: float = 0.0
    persistence: bool | None = None
    memory_why_not: str | None = "this backend does not set memory clocks"

    @property
    def default_clock_mhz(self) -> int:
        """The clock that the device takes when nobody locks it: its maximum (0 without a grid)."""
        return self.clocks_mhz[0] if self.clocks_mhz else 0

    @property
    def grid(self) -> str:
        """The clocks in words, for a refusal."""
        return describe_grid(self.clocks_mhz)


@dataclass(frozen=True, slots=True)
class Achieved:
    """What the device runs at just now, and why."""

    clock_mhz: int
    memory_clock_mhz: int
    event_reasons: EventReason


def describe_grid(clocks_mhz: tuple[int, ...]) -> str:
    """Describe a descending grid in a few words: ``210 to 1410 MHz in steps of 15``."""
    if not clocks_mhz:
        return "no clocks at all"
    low, high = clocks_mhz[-1], clocks_mhz[0]
    steps = {above - below for above, below in pairwise(clocks_mhz)}
    if len(steps) == 1:
        return f"{low} to {high} MHz in steps of {steps.pop()}"
    return f"{len(clocks_mhz)} clocks from {low} to {high} MHz"
