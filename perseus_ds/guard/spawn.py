"""A guard process as its trainer knows it: its start, and what the trainer restores if it was killed."""

from __future__ import annotations

import os
import signal
import site
import socket
import subprocess
import sys
import threading
from pathlib import Path

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.journal import VARIABLE, guard_path
from perseus_ds.guard.log import log_error, not_restored
from perseus_ds.guard.protocol import KIND, RESTORED
from perseus_ds.guard.repair import restore_without_journal

_END_S = 40.0  # a guard retries for 30 s with a driver that refuses


class SpawnedGuard:
    """A guard process that this process has started.

    ``own`` is the trainer's own handle of the GPU, open for as long as this is used. ``restore_clock_mhz`` is
    the clock that the guard restores.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        own: Gpu,
        backend: str,
        *,
        restore_clock_mhz: int | None = None,
        end_s: float = _END_S,
    ) -> None:
        self.pid, self.backend = process.pid, backend
        self.has_taken = False
        self._process, self._own, self._end_s = process, own, end_s
        self._restore_clock_mhz = restore_clock_mhz
        self._lock, self._restored = threading.Lock(), False

    def wait(self) -> None:
        """Wait until it has ended; report one that does not, which its driver may hold up.

        It is waited for once: the second call only looks.
        """
        try:
            self._process.wait(self._end_s)
        except subprocess.TimeoutExpired:
            if self._end_s:
                uuid = self._own.identify().uuid
                log_error(
                    f"the guard (process {self.pid}) hangs: the clock of {uuid} is not put back until "
                    "its driver answers; if it never does, perseus-ds clocks reset will"
                )
            self._end_s = 0.0

    def ensure_restored(self) -> None:
        """Restore the clock where the guard could not: it was killed, or its driver refused to the end.

        Its socket may close before its locks are free, so its end is waited for; a stopped one goes on. A
        failure is reported, and tried again at the next call.
        """
        with self._lock:
            self._process.send_signal(signal.SIGCONT)
            self.wait()
            if self._restored or not self.has_taken or self._process.returncode in {None, RESTORED}:
                return
            try:
                restore_without_journal(self._own, self.backend, self._restore_clock_mhz)
            except DeviceError as error:
                log_error(not_restored(error))
            else:
                self._restored = True


def own_environment() -> dict[str, str]:
    """Return this process's environment with a ``PYTHONPATH`` by which another Python finds this package.

    A job may have it beside its script, or have put its folder on ``sys.path`` itself.
    """
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    root = str(Path(__file__).parents[2])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        # a site's folder would come before the standard library, whose old backports it may hold
        paths.insert(0, root)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}


def spawn(restore_clock_mhz: int | None = None) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard in a session of its own, so that Ctrl-C for the job does not end it before the restore.

    Cost: about 0.1 s until the guard answers.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    environment = own_environment()
    if os.environ.get(VARIABLE):  # the folder as this process sees it: a guard has another working directory
        environment[VARIABLE] = str(guard_path())
    command = [sys.executable, "-P", "-m", "perseus_ds.guard", str(theirs.fileno()), str(os.getpid())]
    if restore_clock_mhz is not None:
        command.append(str(restore_clock_mhz))
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - this Python, our own module
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise DeviceUnavailableError(f"cannot start a guard: {error}") from error
    return ours, process


def open_guarded(reader: Gpu, backend: str = "nvml", restore_clock_mhz: int | None = None) -> GuardedGpu:
    """Start a guard that sets a GPU's clock through ``backend``, and at last to ``restore_clock_mhz``."""
    sock, process = spawn(restore_clock_mhz)
    guard = SpawnedGuard(process, reader, backend, restore_clock_mhz=restore_clock_mhz)
    return GuardedGpu(reader, sock, guard=guard)
