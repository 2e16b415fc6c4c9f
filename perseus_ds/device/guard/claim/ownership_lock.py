"""Who holds a GPU's clock: a file lock, which the kernel frees however its holder ends."""

from __future__ import annotations

import fcntl
import os

from perseus_ds.device.guard.claim.journal import path_of
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError


class OwnershipLock:
    """The sole right to write one GPU's clock on this machine."""

    def __init__(self, uuid: str, owner: str) -> None:
        """Take the lock at once or not at all.

        Raises:
            DeviceUnavailableError: somebody else holds it; the message names them.
            DevicePermissionError: the lock file cannot be opened.
        """
        path = path_of(uuid).with_suffix(".lock")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DevicePermissionError(
                f"cannot open {path}: {error}", hint="set PERSEUS_GUARD_DIR"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 256, 0).decode(errors="replace") or "somebody else"
            os.close(self._file)
            raise DeviceUnavailableError(f"the clock of {uuid} is held by {holder}") from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, owner.encode(errors="replace")[:256], 0)

    def release(self) -> None:
        """Let go; the second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
