"""Which pairs of clocks to measure on a device, and whether its memory clock can be set at all."""

from __future__ import annotations

from perseus_ds.device import Capabilities, Gpu
from perseus_ds.device.clock_pair import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

CORE_CLOCKS = 9
_LOWEST_SHARE = 0.3


def memory_probe(gpu: Gpu) -> str | None:
    """Try to set the memory clock that is there by default, and give it back; state why it cannot be set.

    For a device of one's own only: what another has locked would be lost.
    """
    able = gpu.capabilities()
    if able.memory_why_not is not None:
        return able.memory_why_not
    try:
        gpu.lock_memory_clock(able.memory_clocks_mhz[0])
        gpu.reset_memory_clock()
    except DeviceError as error:
        return error.message
    return None


def candidate_pairs(
    able: Capabilities, *, memory: bool, core_clocks: int = CORE_CLOCKS
) -> tuple[ClockPair, ...]:
    """The default pair first, then each memory clock (and the device's own choice) with each core clock.

    Core clocks are spread evenly from the highest to 30 % of it.

    Raises:
        DeviceUnsupportedError: the device locks no core clock.
    """
    if not able.clocks_mhz:
        raise DeviceUnsupportedError(f"no core clock can be locked: {able.why_not}")
    top_mhz = able.clocks_mhz[0]
    useful = [clock for clock in able.clocks_mhz if clock >= _LOWEST_SHARE * top_mhz]
    count = min(core_clocks, len(useful))
    span = len(useful) - 1
    cores = [useful[round(place * span / max(1, count - 1))] for place in range(count)]
    memories = (None, *able.memory_clocks_mhz[1:]) if memory else (None,)
    pairs = [ClockPair(mem, core) for mem in memories for core in (None, *cores)]
    return (DEFAULT_PAIR, *(pair for pair in pairs if pair != DEFAULT_PAIR))
