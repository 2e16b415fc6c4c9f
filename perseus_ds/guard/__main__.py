"""The guard process: the one writer of its parent's GPU clock, which it survives just long enough.

It is started as ``python -m perseus_ds.guard FILENO PARENT [RESTORE_CLOCK_MHZ]``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

from perseus_ds.guard.claim import open_gpu
from perseus_ds.guard.connection import ClientConnection, Terms, ending_signals, go_first, serve
from perseus_ds.guard.policy import Peer, Policy, Rule
from perseus_ds.guard.spawn import leave

_OOM_SCORE = "-500"  # rather the trainer than the one who cleans up after it


def guard(fileno: int, parent: int, restore_clock_mhz: int | None = None) -> int:
    """Serve the parent over a socket until it is gone; return how many GPUs could not be put back."""
    with ending_signals() as signalled:
        _survive_memory_pressure()
        go_first()
        client = socket.socket(fileno=fileno)
        ends = dict.fromkeys([signalled, *_watch(parent)], "the trainer is gone")
        if os.getppid() != parent:
            return 0  # gone before it took anything
        peer = Peer(parent, os.getuid(), os.getgid())
        policy = Policy((Rule(),), restore_clock_mhz=restore_clock_mhz)
        connection = ClientConnection(client, peer, Terms(lambda: policy, open_gpu, killed_together=leave()))
        return int(not serve(connection, ends))


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


if __name__ == "__main__":
    sys.exit(guard(*map(int, sys.argv[1:])))
