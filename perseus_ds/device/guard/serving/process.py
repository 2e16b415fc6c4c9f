"""What a guard does to its own process: it goes first, and no signal ends it before a restore."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NICENESS = -10


@contextmanager
def ending_signals() -> Iterator[int]:
    """Give a descriptor that becomes readable with the first signal, its number a byte. For the main thread.

    From now on, these signals end nothing by themselves: a restore is never cut short by a second one.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    try:
        yield ours.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        ours.close()
        theirs.close()


def go_first() -> None:
    """Where more wants to run than there are cores no restore queues up.

    Who may set clocks mostly may do this too; a guard needs a tenth of a millisecond per request.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
