"""A guard process as its trainer knows it: what it guards, and its last duty if it was killed."""

from __future__ import annotations

import contextlib
import subprocess
import threading

from perseus_ds.device.guard.claim.repair import repair_without_journal
from perseus_ds.device.guard.complain import complain_not_restored
from perseus_ds.errors import DeviceError

_END_S = 40.0  # a guard insists for 30 s with a driver that refuses


class SpawnedGuard:
    """A process to outlive; ``preexisting_mhz`` is what it found, once it has said so."""

    def __init__(self, process: subprocess.Popen[bytes], uuid: str, backend: str) -> None:
        self.pid = process.pid
        self.backend = backend
        self.preexisting_mhz: int | None = None
        self.has_taken = False
        self._process = process
        self._uuid = uuid
        self._once = threading.Lock()
        self._restored = False

    def wait(self) -> None:
        """Wait until it has ended; one that hangs in the driver ends by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def make_good(self) -> None:
        """Do its last duty where it could not: it was killed, or its driver refused to the end.

        Its socket may close before its locks are free, so its end is waited for.
        """
        with self._once:
            self.wait()
            if self._restored or not self.has_taken or not self._process.returncode:
                return
            self._restored = True
            try:
                repair_without_journal(self._uuid, self.backend, self.preexisting_mhz)
            except DeviceError as error:
                complain_not_restored(error)
