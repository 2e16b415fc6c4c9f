"""The guard process: the one writer of its parent's GPU clock, which it survives just long enough.

It is started as ``python -m perseus_ds.guard FILENO PARENT [RESTORE_CLOCK_MHZ]``. With the words of a command
(``guardd``, ``clocks``) it is the node's program, which has no other modules of ours than the guard's.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

from perseus_ds.guard.connection import ClientConnection, Server, ending_signals, raise_priority, serve
from perseus_ds.guard.containment import leave_control_group
from perseus_ds.guard.policy import Peer, Policy, Rule
from perseus_ds.guard.protocol import RESTORED

_OOM_SCORE = "-500"  # rather the trainer than the one who cleans up after it


def guard(fileno: int, parent: int, restore_clock_mhz: int | None = None) -> int:
    """Serve the parent over a socket until it is gone; return `RESTORED`, or 1 where its GPU could not be."""
    with ending_signals() as signalled:
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
        raise_priority()
        client = socket.socket(fileno=fileno)
        ends = dict.fromkeys([signalled], "the trainer is gone")
        # End of file alone does not do: a worker that the parent forked holds a copy of its end of the
        # socket.
        with contextlib.suppress(OSError, AttributeError):
            ends[os.pidfd_open(parent)] = "the trainer is gone"
        if os.getppid() != parent:
            return RESTORED  # gone before it took anything
        policy = Policy((Rule(),), restore_clock_mhz=restore_clock_mhz)
        server = Server(policy, killed_together=leave_control_group())
        peer = Peer(parent, os.getuid())
        return RESTORED if serve(ClientConnection(client, peer, server), ends) else 1


if __name__ == "__main__":
    if sys.argv[1:] and all(word.isdecimal() for word in sys.argv[1:]):
        sys.exit(guard(*map(int, sys.argv[1:])))
    from perseus_ds.guard.command import main

    sys.exit(main(sys.argv[1:]))
