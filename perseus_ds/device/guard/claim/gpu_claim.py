"""Control of one GPU from taking it to giving it back as it was found."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.journal import BadJournalError, Journal
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.device.guard.claim.preexisting_lock import preexisting_lock_mhz
from perseus_ds.device.guard.claim.restore import apply_preexisting, restore
from perseus_ds.device.guard.container import sees_the_node
from perseus_ds.device.guard.protocol import printable
from perseus_ds.device.record import Capabilities
from perseus_ds.errors import DeviceUnsupportedError

_LOOKS, _BETWEEN_LOOKS_S = 3, 0.005
_PATIENCE_S = 30.0


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, given back together."""

    def __init__(
        self, gpu: Gpu, owner: str, *, backend: str = "nvml", patience_s: float = _PATIENCE_S
    ) -> None:
        """Take the GPU; what a killed guard left is put right first.

        Raises:
            DeviceUnavailableError: another guard holds it.
            DevicePermissionError: no journal can be kept.
            DeviceError: what was left could not be put right.
        """
        self.gpu = gpu
        self.remarks: tuple[str, ...] = ()
        identity = gpu.identify()
        self.uuid = identity.uuid
        self._patience_s = patience_s
        self._lock = OwnershipLock(self.uuid, owner)
        self.passed = self._lock.passed
        try:
            self.preexisting_mhz = self._found_mhz()
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
        """Ask once for the clock as it was found.

        Raises:
            DeviceError: the driver refused.
        """
        apply_preexisting(self.gpu, self.preexisting_mhz)

    def release(self) -> None:
        """Put the clock back and see that it is, then forget the journal, then free the lock; in that order.

        Raises:
            DeviceError: the clock could not be put back; the journal stays for the next start.
        """
        try:
            restore(self.gpu, self.preexisting_mhz, for_s=self._patience_s)
            journal.remove(self.uuid)
        finally:
            self._lock.release()

    def _found_mhz(self) -> int | None:
        try:
            left = journal.read(self.uuid)
        except BadJournalError as error:
            self.remarks += (str(error),)
            journal.set_aside(self.uuid)
            restore(self.gpu, None, for_s=self._patience_s)
            return None
        if left is not None and left.boot_id == journal.boot_id():
            left = replace(left, preexisting_mhz=self._on_grid(left.preexisting_mhz))
            restore(self.gpu, left.preexisting_mhz, for_s=self._patience_s)
            return left.preexisting_mhz
        return self._standing_mhz()

    def _on_grid(self, clock_mhz: int | None) -> int | None:
        """A journaled clock as this GPU has it: the nearest one, and its own choice for what it never had."""
        able: Capabilities = self.gpu.capabilities()
        if clock_mhz is None or clock_mhz in able.clocks_mhz:
            return clock_mhz
        inside = bool(able.clocks_mhz) and able.clocks_mhz[-1] <= clock_mhz <= able.clocks_mhz[0]
        nearest = min(able.clocks_mhz, key=lambda clock: abs(clock - clock_mhz)) if inside else None
        instead = "its default clocks are" if nearest is None else f"{nearest} MHz is"
        self.remarks += (
            f"the journal of {self.uuid} names {clock_mhz} MHz, not a clock of it: {instead} put back",
        )
        return nearest

    def _standing_mhz(self) -> int | None:
        """Somebody's lock, where there is no journal of ours.

        A clock that stands is no proof by itself: it may be left by a guard whose journal went with its
        container. It counts only where every guard's journal would be seen.
        """
        if not sees_the_node():
            return None
        try:
            return self.gpu.standing_lock_mhz()
        except DeviceUnsupportedError:
            samples = []
        for look in range(_LOOKS):
            time.sleep(_BETWEEN_LOOKS_S if look else 0)
            samples.append(self.gpu.achieved())
        return preexisting_lock_mhz(samples, self.gpu.capabilities())
