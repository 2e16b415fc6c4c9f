"""Control of one GPU from taking it to giving it back as it was found."""

from __future__ import annotations

import os
from dataclasses import replace

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal, unseen
from perseus_ds.device.guard.claim.found import put_right
from perseus_ds.device.guard.claim.journal import Journal
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.device.guard.claim.patience import WAY_BACK_S
from perseus_ds.device.guard.claim.restore import apply_preexisting, restore
from perseus_ds.device.guard.claim.unseen import Unseen
from perseus_ds.device.guard.protocol import printable

_BEGIN_S = 10.0  # what a killed guard left is put back so long, while the client waits for its answer


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, given back together."""

    def __init__(
        self, gpu: Gpu, owner: str, *, backend: str = "nvml", patience_s: float = WAY_BACK_S
    ) -> None:
        """Take the GPU; what a killed guard left is put right first.

        Raises:
            DeviceUnavailableError: another guard holds it.
            DevicePermissionError: no journal can be kept.
            DeviceError: what was left could not be put right.
        """
        self.gpu = gpu
        identity = gpu.identify()
        self.uuid = identity.uuid
        self._patience_s = patience_s
        self._last_mhz: int | None = None
        self._lock = OwnershipLock(self.uuid, owner)
        self.passed = self._lock.passed
        try:
            found = put_right(gpu, self.uuid, for_s=min(_BEGIN_S, patience_s))
            self.preexisting_mhz, self.remarks = found.preexisting_mhz, found.remarks
            self.unsure = found.unsure
            self._journal = Journal(
                uuid=self.uuid,
                name=printable(identity.name)[:256],
                preexisting_mhz=self.preexisting_mhz,
                owner=printable(owner)[:256],
                pid=os.getpid(),
                boot_id=journal.boot_id(),
                backend=backend,
            )
            journal.write(self._journal)
            self._earlier = unseen.find(self.uuid)
            unseen.forget(self.uuid)
            self._journal_path = journal.path_of(self.uuid)
        except BaseException:
            self._lock.release()
            raise

    def lock_clock(self, clock_mhz: int) -> None:
        """Set a clock, never without a journal of it on disk.

        Raises:
            DeviceError: the driver refused, or the journal was removed and cannot be written again.
        """
        self.keep_journal()
        self._last_mhz = clock_mhz
        self.gpu.lock_clock(clock_mhz)

    def adopt(self, standing_mhz: int | None) -> None:
        """Take what a working GPU shows for what was there: an operator's lock, or none (``None``).

        A lock that an earlier guard had left is put back.

        Raises:
            DeviceError: the journal cannot be written, or what was left not be put back.
        """
        self.unsure = False
        earlier = self._earlier
        if standing_mhz is not None and earlier is not None and earlier.may_be(standing_mhz):
            standing_mhz = earlier.preexisting_mhz
            apply_preexisting(self.gpu, standing_mhz)
        if standing_mhz != self.preexisting_mhz:
            self.preexisting_mhz = standing_mhz
            self._journal = replace(self._journal, preexisting_mhz=standing_mhz)
            journal.write(self._journal)

    def keep_journal(self) -> None:
        """See that the journal is there, and write it again if not.

        Raises:
            DevicePermissionError: it cannot be.

        Cost: 2 us where it is there.
        """
        if not self._journal_path.exists():
            self._journal.keep()

    def restore(self) -> None:
        """Ask once for the clock as it was found.

        Raises:
            DeviceError: the driver refused.
        """
        apply_preexisting(self.gpu, self.preexisting_mhz)

    def release(self) -> None:
        """Put the clock back and see that it is, then forget the journal, then free the lock; in that order.

        Where the clock cannot be seen, on an idle GPU, its journal is kept as done (`unseen`).

        Raises:
            DeviceError: the clock could not be put back; the journal stays for the next start.
        """
        try:
            hidden = restore(self.gpu, self.preexisting_mhz, for_s=self._patience_s, last_mhz=self._last_mhz)
            if hidden is None or unseen.keep(self.uuid, Unseen(self.preexisting_mhz, self._last_mhz)):
                journal.remove(self.uuid)
        finally:
            self._lock.release()
