"""The guard process: the one writer of its parent's GPU clock, which it survives just long enough."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from perseus_ds.device.guard.loop import Loop
from perseus_ds.device.guard.openers import open_gpu
from perseus_ds.device.guard.policy import EVERYTHING, Peer
from perseus_ds.device.guard.session import Session
from perseus_ds.device.guard.signals import disarm_signals, ending_signals

_OOM_SCORE = "-500"  # rather the trainer than the one who cleans up after it


def guard(fileno: int, parent: int) -> int:
    """Serve the parent over a socket until it is gone; return how many GPUs could not be put back."""
    disarm_signals()
    _survive_memory_pressure()
    client = socket.socket(fileno=fileno)
    with ending_signals() as signalled:
        ends = [signalled, *_watch(parent)]
        if os.getppid() != parent:
            return 0  # gone before it took anything
        session = Session(client, Peer(parent, os.getuid(), os.getgid()), EVERYTHING, open_gpu)
        return int(not Loop(session, *ends).run())


def _watch(parent: int) -> list[int]:
    """A descriptor that becomes readable when the parent ends, where the kernel has such.

    End-of-file alone does not do: a worker that the parent forked holds a copy of its end of the socket.
    """
    try:
        return [os.pidfd_open(parent)]
    except (OSError, AttributeError):
        return []


def _survive_memory_pressure() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
