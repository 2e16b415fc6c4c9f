"""Put a clock back, and read it before anything reports it; also where a killed guard had left it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from perseus_ds.device.conflict import is_at
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.journal import BadJournalError
from perseus_ds.device.guard.claim.patience import insist, whatever
from perseus_ds.device.record import Achieved, EventReason
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

_SETTLE_S, _POLL_S = 0.3, 0.004
_READS = 5  # of a clock that a tired driver may not tell


def apply_clock(gpu: Gpu, clock_mhz: int | None) -> None:
    """Ask the driver for a clock (``None``: its own choice).

    Raises:
        DeviceError: refused.
    """
    if clock_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(clock_mhz)


def restore(
    gpu: Gpu, restore_clock_mhz: int | None, *, for_s: float, last_mhz: int | None = None
) -> Unseen | None:
    """Set a clock (``None``: the driver's own choice) and see that it is; who refuses is asked again.

    Returns ``None`` where it is seen, else what hides it: the driver has taken it, no more is known.
    ``last_mhz`` is the clock that was locked last, where that is known.

    Raises:
        DeviceError: it did not come back in this time; the message names the clock that stands there.

    Cost: the driver's call and the switch latency, where nothing refuses; 0.3 s where it cannot be seen.
    """
    held_mhz = last_mhz

    def act() -> Unseen | None:
        nonlocal held_mhz
        held_mhz = held_mhz or _clock_mhz(gpu)  # once: after the first call that is taken it tells nothing
        apply_clock(gpu, restore_clock_mhz)
        return _read_back(gpu, restore_clock_mhz, held_mhz)

    try:
        return insist(act, for_s=for_s, passes=whatever)
    except _StandsError:
        raise
    except DeviceError as error:
        clock_mhz = _clock_mhz(gpu)
        runs = "its clock cannot be read" if clock_mhz is None else f"it runs at {clock_mhz} MHz"
        raise type(error)(f"{error.message}; {runs}", hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class Unseen:
    """A clock that is put back and not seen there; ``moved``: it has left the clock of its lock, though."""

    why: str
    moved: bool = False


def forget(uuid: str, unseen: Unseen | None) -> None:
    """Remove the journal of a clock that was put back, unless it may still stand where it was locked."""
    if unseen is None or unseen.moved:
        journal.remove(uuid)


@dataclass(frozen=True, slots=True)
class PutBack:
    """What a killed guard had left, put back; ``unseen`` says why it is not seen, ``remarks`` are logged."""

    restore_clock_mhz: int | None
    unseen: Unseen | None
    remarks: tuple[str, ...] = ()


def put_back_left(gpu: Gpu, uuid: str, *, for_s: float) -> PutBack | None:
    """Put back what a killed guard has left, if anything. The GPU's ownership lock must be held.

    Raises:
        DeviceError: it could not be put back in this time; the journal stays.
    """
    try:
        left = journal.read(uuid)
    except BadJournalError as error:
        return PutBack(None, restore(gpu, None, for_s=for_s), (str(error),))
    if left is None or left.boot_id != journal.boot_id():
        return None
    back_mhz, remarks = _on_grid(gpu, uuid, left.restore_clock_mhz)
    return PutBack(back_mhz, restore(gpu, back_mhz, for_s=for_s), remarks)


def _on_grid(gpu: Gpu, uuid: str, clock_mhz: int | None) -> tuple[int | None, tuple[str, ...]]:
    """A journaled clock as this GPU has it: the nearest one, and its own choice for what it never had."""
    clocks_mhz = gpu.capabilities().clocks_mhz
    if clock_mhz is None or clock_mhz in clocks_mhz:
        return clock_mhz, ()
    inside = clocks_mhz[-1] <= clock_mhz <= clocks_mhz[0]
    nearest_mhz = min(clocks_mhz, key=lambda clock: abs(clock - clock_mhz)) if inside else None
    instead = "its default clocks are" if nearest_mhz is None else f"{nearest_mhz} MHz is"
    return nearest_mhz, (
        f"the journal of {uuid} names {clock_mhz} MHz, not a clock of it: {instead} put back",
    )


def _clock_mhz(gpu: Gpu) -> int | None:
    for _ in range(_READS):
        with contextlib.suppress(DeviceError):
            return gpu.achieved().clock_mhz
    return None


def _read_back(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Unseen | None:
    """Look until the clock is seen or has had the time to be; a driver that cannot be read is asked again."""
    until_s = time.monotonic() + _SETTLE_S
    while True:
        late = time.monotonic() > until_s
        try:
            unseen = _unseen(gpu, wanted_mhz, held_mhz)
            if unseen is None or late:
                return unseen
        except DeviceError:
            if late:
                raise
        time.sleep(_POLL_S)


def _unseen(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Unseen | None:
    """Judge by the device's own word where it gives one, else by its clock.

    A clock that is where it should be, or at its highest, is seen. One that left where it was locked is free,
    unless the device has a reason to hold it down, which hides a lock as well.

    Raises:
        DeviceError: it stands where it was locked, for no reason; or nothing can be read.
    """
    try:
        standing_mhz = gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        return _unseen_by_clock(gpu, wanted_mhz, held_mhz, gpu.achieved())
    if standing_mhz == wanted_mhz:
        return None
    raise _StandsError.at(wanted_mhz, standing_mhz or gpu.achieved().clock_mhz)


def _unseen_by_clock(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None, seen: Achieved) -> Unseen | None:
    highest_mhz = gpu.capabilities().default_clock_mhz
    reasons = seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
    there = seen.clock_mhz >= highest_mhz if wanted_mhz is None else is_at(wanted_mhz, seen)
    if there and highest_mhz:
        return None
    if held_mhz is None:
        return Unseen(_why(reasons))
    left = not is_at(held_mhz, seen)
    if left and wanted_mhz is None and (not reasons or seen.clock_mhz > held_mhz):
        return None
    if left and gpu.load_pct() == 0:
        return Unseen("idle", moved=True)
    if not reasons:
        raise _StandsError.at(wanted_mhz, seen.clock_mhz)
    return Unseen(_why(reasons), moved=left)


def _why(reasons: EventReason) -> str:
    if reasons & EventReason.GPU_IDLE:
        return "idle"
    return "held down by power or heat" if reasons else "nobody knows where it stood before"


class _StandsError(DeviceError):
    """A clock that the driver took, and that is not in force."""

    @classmethod
    def at(cls, wanted_mhz: int | None, seen_mhz: int) -> _StandsError:
        wish = "the device's own choice" if wanted_mhz is None else f"{wanted_mhz} MHz"
        return cls(f"the driver took {wish} and still runs at {seen_mhz} MHz")
