"""Put right what killed guards left: for the next start, and for ``perseus-ds clocks reset``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.claim.journal import BadJournalError
from perseus_ds.device.guard.claim.openers import OpenGpu, open_gpu
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.device.guard.claim.restore import restore
from perseus_ds.errors import DeviceAbsentError, DeviceError, DevicePermissionError, DeviceUnavailableError

_OWNER = "perseus-ds clocks reset"
_PATIENCE_S = 5.0


class Outcome(Enum):
    """What became of one GPU."""

    RESTORED = "put back"
    GONE = "not on this machine any more: its journal is filed as .gone"
    HELD = "left alone: a living guard holds it"
    FAILED = "could not be put back"


@dataclass(frozen=True, slots=True)
class Repair:
    """One GPU that was looked after; ``clock_mhz`` is the lock it has now (``None``: none)."""

    uuid: str
    outcome: Outcome
    clock_mhz: int | None
    detail: str

    def __str__(self) -> str:
        return f"{self.uuid}: {self.outcome.value}{f' ({self.detail})' if self.detail else ''}"


def repair(uuid: str | None = None, *, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Put back every GPU (or one) whose guard was killed, from the journal that it left.

    Raises:
        DevicePermissionError: the journals cannot be read.
    """
    left = [known for known in journal.journaled() if uuid in {None, known}]
    done = (_repaired(known, open_gpu) for known in left)
    return tuple(one for one in done if one is not None)


def reset(uuids: tuple[str, ...], *, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Remove any lock from these GPUs, also one that no journal knows, unless a living guard holds it."""
    return tuple(_reset(uuid, open_gpu) for uuid in uuids)


def repair_without_journal(uuid: str, backend: str, preexisting_mhz: int | None) -> None:
    """Put back what a guard of ours left, by what its trainer knows of it: its journal may be gone.

    Raises:
        DeviceError: refused to the end of our patience.
    """
    with open_gpu(backend, uuid) as gpu:
        lock = _lock_if_possible(uuid)
        try:
            restore(gpu, preexisting_mhz, for_s=_PATIENCE_S)
            with contextlib.suppress(DevicePermissionError):
                journal.remove(uuid)
        finally:
            if lock is not None:
                lock.release()


def _lock_if_possible(uuid: str) -> OwnershipLock | None:
    """The lock of a GPU, or nothing where its folder cannot be made any more.

    Raises:
        DeviceUnavailableError: somebody else holds it by now, and has put it right.
    """
    try:
        return OwnershipLock(uuid, _OWNER)
    except DevicePermissionError:
        return None


def _repaired(uuid: str, open_gpu: OpenGpu) -> Repair | None:
    """Repair one GPU; ``None``: it was filed as gone before, and still is."""
    try:
        backend = _backend_of(uuid)
        with open_gpu(backend, uuid) as gpu:
            claim = GpuClaim(gpu, _OWNER, backend=backend, patience_s=_PATIENCE_S)
            claim.release()
    except DeviceAbsentError:
        return Repair(uuid, Outcome.GONE, None, "") if journal.file_as_gone(uuid) else None
    except DeviceError as error:
        return _failed(uuid, error)
    remarks = filter(None, (*claim.remarks, claim.passed))
    return Repair(uuid, Outcome.RESTORED, claim.preexisting_mhz, "; ".join(remarks))


def _backend_of(uuid: str) -> str:
    try:
        left = journal.read(uuid)
    except BadJournalError:
        return journal.BACKENDS[0]
    return journal.BACKENDS[0] if left is None else left.backend


def _reset(uuid: str, open_gpu: OpenGpu) -> Repair:
    try:
        with open_gpu(journal.BACKENDS[0], uuid) as gpu:
            passed = _reset_locked(gpu, uuid)
    except DeviceError as error:
        return _failed(uuid, error)
    return Repair(uuid, Outcome.RESTORED, None, passed or "")


def _reset_locked(gpu: Gpu, uuid: str) -> str | None:
    """Reset it; return who poses as its guard, if anybody does."""
    lock = OwnershipLock(uuid, _OWNER)
    try:
        restore(gpu, None, for_s=_PATIENCE_S)
        journal.remove(uuid)
    finally:
        lock.release()
    return lock.passed


def _failed(uuid: str, error: DeviceError) -> Repair:
    held = isinstance(error, DeviceUnavailableError) and "is held by" in error.message
    return Repair(uuid, Outcome.HELD if held else Outcome.FAILED, None, str(error))
