"""Control of one GPU from taking it to giving it back."""

from __future__ import annotations

import os
import time

from perseus_ds.device.conflict import apparent_lock_mhz
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.journal import Journal
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.device.guard.claim.patience import WAY_BACK_S, insist
from perseus_ds.device.guard.claim.restore import apply_clock, forget, put_back_left, restore
from perseus_ds.device.guard.protocol import printable
from perseus_ds.device.record import Achieved
from perseus_ds.errors import DeviceUnsupportedError

_BEGIN_S = 10.0  # what a killed guard left is put back so long, while the client waits for its answer
_LOOKS, _BETWEEN_LOOKS_S = 3, 0.05
_READ_S = 2.0  # with a driver that refuses to be read


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, given back together.

    ``restore_clock_mhz`` is the clock that it has without a request, and at the end (``None``: the driver's
    own choice). ``locked_before_mhz`` is another one at which it looked locked before.
    """

    def __init__(
        self,
        gpu: Gpu,
        owner: str,
        *,
        backend: str = "nvml",
        patience_s: float = WAY_BACK_S,
        restore_clock_mhz: int | None = None,
    ) -> None:
        """Take the GPU; what a killed guard left is put right first.

        Raises:
            DeviceUnavailableError: another guard holds it.
            DevicePermissionError: no journal can be kept.
            DeviceUnsupportedError: the clock to put back is none of this GPU.
            DeviceError: what was left could not be put back.
        """
        self.gpu = gpu
        identity = gpu.identify()
        self.uuid = identity.uuid
        self._patience_s = patience_s
        self._last_mhz: int | None = None
        self._lock = OwnershipLock(self.uuid, owner)
        try:
            begin_s = min(_BEGIN_S, patience_s)
            left = put_back_left(gpu, self.uuid, for_s=begin_s)
            _check(gpu, self.uuid, restore_clock_mhz)
            self.remarks = () if left is None else left.remarks
            self.restore_clock_mhz = restore_clock_mhz
            locked_mhz = _looks_locked_mhz(gpu)
            self.locked_before_mhz = None if locked_mhz == restore_clock_mhz else locked_mhz
            self._journal = Journal(
                uuid=self.uuid,
                name=printable(identity.name)[:256],
                restore_clock_mhz=self.restore_clock_mhz,
                owner=printable(owner)[:256],
                pid=os.getpid(),
                boot_id=journal.boot_id(),
                backend=backend,
            )
            journal.write(self._journal)
            if locked_mhz != restore_clock_mhz:  # the baseline is measured where the job leaves it
                insist(self.restore, for_s=begin_s)
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

    def keep_journal(self) -> None:
        """See that the journal is there, and write it again if not.

        Raises:
            DevicePermissionError: it cannot be.

        Cost: 2 us where it is there.
        """
        if not self._journal_path.exists():
            self._journal.keep()

    def restore(self) -> None:
        """Ask once for the clock that the GPU has without a request.

        Raises:
            DeviceError: the driver refused.
        """
        apply_clock(self.gpu, self.restore_clock_mhz)

    def release(self) -> None:
        """Put the clock back and see that it is, then forget the journal, then free the lock; in that order.

        Raises:
            DeviceError: the clock could not be put back; the journal stays for the next start.
        """
        try:
            unseen = restore(
                self.gpu, self.restore_clock_mhz, for_s=self._patience_s, last_mhz=self._last_mhz
            )
            forget(self.uuid, unseen)
        finally:
            self._lock.release()


def _check(gpu: Gpu, uuid: str, restore_clock_mhz: int | None) -> None:
    able = gpu.capabilities()
    if restore_clock_mhz is not None and restore_clock_mhz not in able.clocks_mhz:
        raise DeviceUnsupportedError(
            f"restore_clock_mhz {restore_clock_mhz} is not a clock of {uuid}: it has {able.grid}"
        )


def _looks_locked_mhz(gpu: Gpu) -> int | None:
    """Look a few times, where the first look is not clear already."""
    try:
        return gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        samples: list[Achieved] = []
    idle = insist(gpu.load_pct, for_s=_READ_S) == 0
    for look in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S if look else 0)
        samples.append(insist(gpu.achieved, for_s=_READ_S))
        if apparent_lock_mhz(samples, gpu.capabilities(), idle=idle) is None:
            return None
    return samples[-1].clock_mhz
