"""The guard process: the one writer of its parent's GPU clock, which it survives just long enough."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from perseus_ds.device.guard.loop import Loop
from perseus_ds.device.guard.openers import open_gpu
from perseus_ds.device.guard.policy import EVERYTHING, Peer
from perseus_ds.device.guard.session import Session

_OOM_SCORE = "-500"  # rather the trainer than the one who cleans up after it


def guard(fileno: int, parent: int) -> int:
    """Serve the parent over a socket until it is gone; return how many GPUs could not be put back."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    _survive_memory_pressure()
    loop = Loop()
    loop.serve(
        Session(socket.socket(fileno=fileno), Peer(parent, os.getuid(), os.getgid()), EVERYTHING, open_gpu)
    )
    loop.stop_when_empty()
    watch = _watch(parent)
    if watch is not None:
        loop.stop_when_readable(watch)
    if os.getppid() != parent:
        loop.stop()
    return loop.run()


def _watch(parent: int) -> int | None:
    """A descriptor that becomes readable when the parent ends.

    End-of-file alone does not do: a worker that the parent forked holds a copy of its end of the socket.
    """
    try:
        return os.pidfd_open(parent)
    except (OSError, AttributeError):
        return None


def _survive_memory_pressure() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
