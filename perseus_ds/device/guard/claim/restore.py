"""Set a clock as it was found, and read it back before anything reports it."""

from __future__ import annotations

import contextlib
import time

from perseus_ds.device.conflict import is_at
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim.patience import insist, whatever
from perseus_ds.device.record import Achieved, EventReason
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

_SETTLE_S, _POLL_S = 0.3, 0.004
_READS = 5  # of a clock that a tired driver may not tell


def apply_preexisting(gpu: Gpu, preexisting_mhz: int | None) -> None:
    """Ask the driver for the clock that was found (``None``: its own choice).

    Raises:
        DeviceError: refused.
    """
    if preexisting_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(preexisting_mhz)


def restore(
    gpu: Gpu, preexisting_mhz: int | None, *, for_s: float, last_mhz: int | None = None
) -> str | None:
    """Set the clock as it was found and see that it is; a driver that refuses is asked again.

    Returns ``None`` where it is seen, else what hides it ("idle"): the driver has taken it, no more is known.
    ``last_mhz`` is the clock that was locked last, where that is known.

    Raises:
        DeviceError: it did not come back in this time; the message names the clock that stands there.

    Cost: the driver's call and the switch latency, where nothing refuses; 0.3 s where it cannot be seen.
    """
    held_mhz = last_mhz

    def act() -> str | None:
        nonlocal held_mhz
        held_mhz = held_mhz or _clock_mhz(gpu)  # once: after the first call that is taken it tells nothing
        apply_preexisting(gpu, preexisting_mhz)
        return _read_back(gpu, preexisting_mhz, held_mhz)

    try:
        return insist(act, for_s=for_s, passes=whatever)
    except _StandsError:
        raise
    except DeviceError as error:
        clock_mhz = _clock_mhz(gpu)
        runs = "its clock cannot be read" if clock_mhz is None else f"it runs at {clock_mhz} MHz"
        raise type(error)(f"{error.message}; {runs}", hint=error.hint) from error


def _clock_mhz(gpu: Gpu) -> int | None:
    for _ in range(_READS):
        with contextlib.suppress(DeviceError):
            return gpu.achieved().clock_mhz
    return None


def _read_back(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> str | None:
    """Look until the clock is seen or has had the time to be; a driver that cannot be read is asked again."""
    until_s = time.monotonic() + _SETTLE_S
    while True:
        late = time.monotonic() > until_s
        try:
            hidden = _hidden(gpu, wanted_mhz, held_mhz)
            if hidden is None or late:
                return hidden
        except DeviceError:
            if late:
                raise
        time.sleep(_POLL_S)


def _hidden(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> str | None:
    """Judge by the device's own word where it gives one, else by its clock.

    A clock that is where it should be, or at its highest, is seen. One that left where it was locked is free,
    unless the device has a reason to hold it down, which hides a lock as well.

    Raises:
        DeviceError: it stands where it was locked, for no reason; or nothing can be read.
    """
    try:
        standing_mhz = gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        return _hidden_by_clock(gpu, wanted_mhz, held_mhz, gpu.achieved())
    if standing_mhz == wanted_mhz:
        return None
    raise _StandsError.at(wanted_mhz, standing_mhz or gpu.achieved().clock_mhz)


def _hidden_by_clock(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None, seen: Achieved) -> str | None:
    highest_mhz = gpu.capabilities().default_clock_mhz
    reasons = seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
    there = seen.clock_mhz >= highest_mhz if wanted_mhz is None else is_at(wanted_mhz, seen)
    if there and highest_mhz:
        return None
    if held_mhz is None:
        return _why_hidden(reasons)
    left = not is_at(held_mhz, seen)
    if left and wanted_mhz is None and (not reasons or seen.clock_mhz > held_mhz):
        return None
    if left and gpu.load_pct() == 0:
        return "idle"
    if not reasons:
        raise _StandsError.at(wanted_mhz, seen.clock_mhz)
    return _why_hidden(reasons)


def _why_hidden(reasons: EventReason) -> str:
    if reasons & EventReason.GPU_IDLE:
        return "idle"
    return "held down by power or heat" if reasons else "nobody knows where it stood before"


class _StandsError(DeviceError):
    """A clock that the driver took, and that is not in force."""

    @classmethod
    def at(cls, wanted_mhz: int | None, seen_mhz: int) -> _StandsError:
        wish = "the device's own choice" if wanted_mhz is None else f"{wanted_mhz} MHz"
        return cls(f"the driver took {wish} and still runs at {seen_mhz} MHz")
