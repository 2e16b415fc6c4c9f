"""Was a clock locked by somebody before us? NVML cannot be asked, so it is judged from what is seen."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.device.record import Achieved, Capabilities, EventReason


def preexisting_lock_mhz(
    samples: Sequence[Achieved], able: Capabilities, *, idle: bool = False
) -> int | None:
    """The clock that an operator has locked, as far as it shows.

    A clock that stands still on a grid point below the maximum, with no reason given (not idle, not
    throttled), is held by somebody. Anything less clear counts as free, since to restore a lock that was
    never there would leave a GPU slow. An ``idle`` GPU may stand far below without giving a reason. A clock
    in the upper half of its range counts for the moment, until the GPU works.
    """
    seen = {(sample.clock_mhz, sample.event_reasons & ~EventReason.APPLICATIONS_CLOCKS) for sample in samples}
    if len(seen) != 1:
        return None
    clock_mhz, reasons = seen.pop()
    held = reasons is EventReason.NONE and able.clocks_mhz[-1:] != (clock_mhz,)
    low = idle and 2 * clock_mhz < able.default_clock_mhz
    return clock_mhz if held and not low and clock_mhz in able.clocks_mhz[1:] else None
