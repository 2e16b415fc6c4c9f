"""Put right what killed guards left: for the next start, and for ``perseus-ds clocks reset``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.claim.openers import OpenGpu, open_gpu
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.errors import DeviceError, DeviceUnavailableError

_OWNER = "perseus-ds clocks reset"


class Outcome(Enum):
    """What became of one GPU."""

    RESTORED = "put back"
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
    return tuple(_repaired(known, open_gpu) for known in left)


def reset(uuids: tuple[str, ...], *, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Remove any lock from these GPUs, also one that no journal knows, unless a living guard holds it."""
    return tuple(_reset(uuid, open_gpu) for uuid in uuids)


def _repaired(uuid: str, open_gpu: OpenGpu) -> Repair:
    try:
        left = journal.read(uuid)
        backend = "nvml" if left is None else left.backend
        with open_gpu(backend, uuid) as gpu:
            claim = GpuClaim(gpu, _OWNER, backend=backend)
            claim.release()
    except DeviceError as error:
        return _failed(uuid, error)
    return Repair(uuid, Outcome.RESTORED, claim.preexisting_mhz, "")


def _reset(uuid: str, open_gpu: OpenGpu) -> Repair:
    try:
        with open_gpu("nvml", uuid) as gpu:
            lock = OwnershipLock(uuid, _OWNER)
            try:
                gpu.reset_clock()
                journal.remove(uuid)
            finally:
                lock.release()
    except DeviceError as error:
        return _failed(uuid, error)
    return Repair(uuid, Outcome.RESTORED, None, "")


def _failed(uuid: str, error: DeviceError) -> Repair:
    held = isinstance(error, DeviceUnavailableError) and "is held by" in error.message
    return Repair(uuid, Outcome.HELD if held else Outcome.FAILED, None, str(error))
