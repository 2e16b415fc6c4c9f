"""Control of one GPU from taking it to putting it back as it was found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.journal import Journal
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.device.guard.claim.preexisting_lock import preexisting_lock_mhz
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

_LOOKS, _BETWEEN_LOOKS_S = 3, 0.005
_TRIES, _BETWEEN_TRIES_S = 3, 0.05


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, given back together."""

    def __init__(self, gpu: Gpu, owner: str, *, backend: str = "nvml") -> None:
        """Take the GPU; what a killed guard left is put right first.

        Raises:
            DeviceUnavailableError: another guard holds it.
            DevicePermissionError: no journal can be kept.
        """
        self.gpu = gpu
        identity = gpu.identify()
        self.uuid = identity.uuid
        self._lock = OwnershipLock(self.uuid, owner)
        try:
            self.preexisting_mhz = self._preexisting_mhz()
            pid, boot_id = os.getpid(), journal.boot_id()
            journal.write(
                Journal(self.uuid, identity.name, self.preexisting_mhz, owner, pid, boot_id, backend)
            )
        except BaseException:
            self._lock.release()
            raise

    def restore(self) -> None:
        """Set the clock as it was found."""
        _restore(self.gpu, self.preexisting_mhz)

    def release(self) -> None:
        """Put the clock back, then forget the journal, then free the lock; in that order.

        Raises:
            DeviceError: the clock could not be put back; the journal stays for the next start.
        """
        try:
            _retry(self.restore)
            journal.remove(self.uuid)
        finally:
            self._lock.release()

    def _preexisting_mhz(self) -> int | None:
        left = journal.read(self.uuid)
        if left is not None and left.boot_id == journal.boot_id():
            _retry(lambda: _restore(self.gpu, left.preexisting_mhz))
            return left.preexisting_mhz
        try:
            return self.gpu.standing_lock_mhz()
        except DeviceUnsupportedError:
            return self._judged_mhz()

    def _judged_mhz(self) -> int | None:
        samples = []
        for look in range(_LOOKS):
            time.sleep(_BETWEEN_LOOKS_S if look else 0)
            samples.append(self.gpu.achieved())
        return preexisting_lock_mhz(samples, self.gpu.capabilities())


def _restore(gpu: Gpu, preexisting_mhz: int | None) -> None:
    if preexisting_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(preexisting_mhz)


def _retry(act: Callable[[], None]) -> None:
    """Try a few times: a driver may be busy for a moment."""
    for left in reversed(range(_TRIES)):
        try:
            act()
        except DeviceError:
            if not left:
                raise
            time.sleep(_BETWEEN_TRIES_S)
        else:
            return
