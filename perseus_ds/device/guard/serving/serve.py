"""One client served to its end: its words, what is due, who else may end it; then the GPU is put back."""

from __future__ import annotations

import contextlib
import select
import sys
import time

from perseus_ds.device.guard.serving.client_connection import Session
from perseus_ds.errors import DeviceUnavailableError

_IDLE_S = 60.0


class Loop:
    """What one thread does for one session.

    The node's service has a thread for each client, so that a GPU with a slow driver holds up nobody else's.
    """

    def __init__(self, session: Session, *ends: int) -> None:
        """Serve a session until its client is gone, or one of the descriptors ``ends`` becomes readable."""
        self._session = session
        self._ends = frozenset(ends)

    def run(self) -> bool:
        """Serve; return whether the GPU, if one was taken, is as it was found."""
        try:
            while self._turn():
                pass
        finally:
            failure = self._session.end()
            if failure is not None:
                _complain(f"clock not put back: {failure}; perseus-ds clocks reset will")
        return failure is None

    def _turn(self) -> bool:
        """Wait for something to happen and do what it asks for; return whether to go on."""
        session = self._session
        launchers = {launcher.fileno(): launcher for launcher in session.launchers}
        ready = _readable({session.socket.fileno(), *self._ends, *launchers}, self._patience_s())
        if ready & self._ends:
            return False
        for gone in ready & launchers.keys():
            session.give_up(
                DeviceUnavailableError(
                    f"the job's launcher is gone ({launchers[gone]}) and nobody is left to end its ranks",
                    hint="control is given up, the clock is put back",
                )
            )
            return False
        if session.socket.fileno() in ready and not session.receive():
            return False
        session.step()
        return not session.idle

    def _patience_s(self) -> float:
        due_s = self._session.due_s()
        return _IDLE_S if due_s is None else min(_IDLE_S, max(0.0, due_s - time.monotonic()))


def _readable(descriptors: set[int], for_s: float) -> set[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(1000 * for_s)}


def _complain(line: str) -> None:
    """Say it on a terminal or log that may be gone with the job."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"perseus_ds guard: {line}\n")
        sys.stderr.flush()
