"""Start a guard process, out of reach of what may befall its parent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import perseus_ds
from perseus_ds.device.guard.claim.folder import VARIABLE, place
from perseus_ds.device.guard.protocol import KIND
from perseus_ds.errors import DeviceUnavailableError


def _folder() -> dict[str, str]:
    """The journals' folder as this process sees it: a guard has another working directory."""
    return {VARIABLE: str(place())} if os.environ.get(VARIABLE) else {}


def spawn() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard in a session of its own, so that Ctrl-C for the job does not end it before the restore.

    Raises:
        DeviceUnavailableError: no process can be started.

    Cost: about 0.1 s until the guard answers.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    root = str(Path(perseus_ds.__file__).resolve().parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-P", "-m", "perseus_ds.device.guard", str(theirs.fileno()), str(os.getpid())]
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - this Python, our own module
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), **_folder()},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise DeviceUnavailableError(f"cannot start a guard: {error}") from error
    return ours, process
