"""Set a clock as it was found, and read back that it is so before anybody says it."""

from __future__ import annotations

import time

from perseus_ds.device.conflict import is_at
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim.patience import insist
from perseus_ds.device.record import Achieved, EventReason
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

_SETTLE_S, _POLL_S = 0.3, 0.004


def apply_preexisting(gpu: Gpu, preexisting_mhz: int | None) -> None:
    """Ask the driver for the clock that was found (``None``: its own choice).

    Raises:
        DeviceError: refused.
    """
    if preexisting_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(preexisting_mhz)


def restore(gpu: Gpu, preexisting_mhz: int | None, *, for_s: float) -> None:
    """Set the clock as it was found and see that it is; a driver that refuses is asked again.

    Raises:
        DeviceError: it did not come back in this time; the message says what stands there.

    Cost: the driver's call and the switch latency, where nothing refuses.
    """

    def act() -> None:
        before = gpu.achieved()
        apply_preexisting(gpu, preexisting_mhz)
        _read_back(gpu, preexisting_mhz, before)

    insist(act, for_s=for_s)


def _read_back(gpu: Gpu, wanted_mhz: int | None, before: Achieved) -> None:
    until_s = time.monotonic() + _SETTLE_S
    while not _is_so(gpu, wanted_mhz, before):
        if time.monotonic() > until_s:
            wish = "the device's own choice" if wanted_mhz is None else f"{wanted_mhz} MHz"
            raise DeviceError(f"the driver took {wish} and still runs at {gpu.achieved().clock_mhz} MHz")
        time.sleep(_POLL_S)


def _is_so(gpu: Gpu, wanted_mhz: int | None, before: Achieved) -> bool:
    """Judge by the device's own word where it gives one, else by its clock.

    A clock that moves, is at its highest, or has a reason to be where it is (idle, power, heat) is free;
    one that stands where it stood, below the highest and for no reason, is still held.
    """
    try:
        return gpu.standing_lock_mhz() == wanted_mhz
    except DeviceUnsupportedError:
        seen = gpu.achieved()
    if seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS:
        return True
    if wanted_mhz is not None:
        return is_at(wanted_mhz, seen)
    return seen.clock_mhz != before.clock_mhz or seen.clock_mhz >= gpu.capabilities().default_clock_mhz
