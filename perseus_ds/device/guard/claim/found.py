"""What stands on a GPU before a guard sets its clock: left by a killed one, an operator's, or nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal, unseen
from perseus_ds.device.guard.claim.journal import BadJournalError
from perseus_ds.device.guard.claim.patience import insist
from perseus_ds.device.guard.claim.restore import restore
from perseus_ds.device.guard.container import sees_the_node
from perseus_ds.device.record import Achieved, Capabilities, EventReason
from perseus_ds.errors import DeviceUnsupportedError

_LOOKS, _BETWEEN_LOOKS_S = 3, 0.005
_READ_S = 2.0  # with a driver that refuses to be read


@dataclass(frozen=True, slots=True)
class Found:
    """What stood there. What a killed guard had left was ``put_back``, and ``hidden`` is why it is not seen.

    ``preexisting_mhz`` is the lock that comes back at the end (``None``: none), ``remarks`` are for the log.
    ``unsure``: the GPU was idle, and may run elsewhere when it works.
    """

    preexisting_mhz: int | None = None
    put_back: bool = False
    hidden: str | None = None
    remarks: tuple[str, ...] = ()
    unsure: bool = False


def put_right(gpu: Gpu, uuid: str, *, for_s: float) -> Found:
    """Look what stands on a GPU, and put back what a killed guard has left. Its ownership lock must be held.

    Raises:
        DeviceError: it could not be put back in this time, or the GPU not be read; the journal stays.
    """
    try:
        left = journal.read(uuid)
    except BadJournalError as error:
        hidden = restore(gpu, None, for_s=for_s)
        journal.set_aside(uuid)  # not before: without it, what stands would count as an operator's
        return Found(put_back=True, hidden=hidden, remarks=(str(error),))
    if left is not None and left.boot_id == journal.boot_id():
        back_mhz, remarks = _on_grid(gpu, uuid, left.preexisting_mhz)
        return Found(back_mhz, put_back=True, hidden=restore(gpu, back_mhz, for_s=for_s), remarks=remarks)
    return _standing(gpu, uuid, for_s)


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


def _standing(gpu: Gpu, uuid: str, for_s: float) -> Found:
    """Somebody's lock, where there is no journal of ours.

    A clock that stands is no proof by itself: it may be left by a guard whose journal went with its
    container. It counts only where every guard's journal would be seen.
    """
    standing_mhz, hidden = _look(gpu) if sees_the_node() else (None, None)
    earlier = unseen.find(uuid)
    if earlier is None or standing_mhz is None:
        unsure = standing_mhz is not None and hidden is not None
        return Found(standing_mhz, hidden=None if earlier is None else hidden, unsure=unsure)
    if not earlier.may_be(standing_mhz):
        return Found(standing_mhz, unsure=hidden is not None)
    remark = f"an earlier guard had put it back unseen, and it stood at {standing_mhz} MHz"
    hidden = restore(gpu, earlier.preexisting_mhz, for_s=for_s)
    return Found(earlier.preexisting_mhz, put_back=True, hidden=hidden, remarks=(remark,))


def _look(gpu: Gpu) -> tuple[int | None, str | None]:
    """Look at a clock a few times; return where it stands as if locked, and what hides that."""
    try:
        return gpu.standing_lock_mhz(), None
    except DeviceUnsupportedError:
        samples: list[Achieved] = []
    for look in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S if look else 0)
        samples.append(insist(gpu.achieved, for_s=_READ_S))
    able = gpu.capabilities()
    free = all(sample.clock_mhz >= able.default_clock_mhz for sample in samples)
    says_so = all(sample.event_reasons & EventReason.GPU_IDLE for sample in samples)
    idle = says_so or (not free and insist(gpu.load_pct, for_s=_READ_S) == 0)
    return preexisting_lock_mhz(samples, able, idle=idle), "idle" if idle else None


def preexisting_lock_mhz(
    samples: Sequence[Achieved], able: Capabilities, *, idle: bool = False
) -> int | None:
    """The clock that an operator has locked, as far as it shows; NVML cannot be asked.

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
