"""The holder of a GPU's clock: a lock that the kernel frees however its holder ends."""

from __future__ import annotations

import contextlib
import fcntl
import os

from perseus_ds.device.guard.claim.journal import path_of
from perseus_ds.device.guard.protocol import printable
from perseus_ds.errors import DeviceHeldError, DevicePermissionError

_LONGEST_NAME = 256


class OwnershipLock:
    """The sole right to write one GPU's clock, among all who keep their journals in the same folder."""

    def __init__(self, uuid: str, owner: str) -> None:
        """Take the lock at once or not at all.

        Raises:
            DeviceHeldError: somebody else holds it; the message names them.
            DevicePermissionError: the lock file cannot be opened.
        """
        path = path_of(uuid).with_suffix(".lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise DevicePermissionError(
                f"cannot open {path}: {error.strerror}", hint="set PERSEUS_GUARD_DIR"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._holder()
            os.close(self._file)
            raise DeviceHeldError(f"the clock of {uuid} is held by {holder}") from error
        with contextlib.suppress(OSError):  # a disk that is full: the lock holds, its holder has no name
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, printable(owner).encode(errors="replace")[:_LONGEST_NAME], 0)

    def release(self) -> None:
        """Let go; the second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _holder(self) -> str:
        with contextlib.suppress(OSError):
            said = os.pread(self._file, _LONGEST_NAME, 0).decode(errors="replace")
            return printable(said) or "somebody else"
        return "somebody else"
