"""The guard's one thread: it waits on its clients, its parent, its listener and signals, and ends clean."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

from perseus_ds.device.guard.session import Session

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_IDLE_S = 60.0

Accept = Callable[[], Session | None]


class Loop:
    """Serves sessions until it is told to stop; then every GPU is put back, whatever happened."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._sessions: set[Session] = set()
        self._stopping = False
        self._until_empty = False

    def serve(self, session: Session) -> None:
        """Take a client in."""
        self._sessions.add(session)
        self._selector.register(session.socket, selectors.EVENT_READ, lambda: self._hear(session))

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._sessions)

    def listen(self, listener: socket.socket, accept: Accept) -> None:
        """Take clients in as they come; ``accept`` may refuse one."""
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._welcome(accept))

    def stop_when_readable(self, fileno: int) -> None:
        """Stop when a descriptor becomes readable, as a dead parent's does."""
        self._selector.register(fileno, selectors.EVENT_READ, self.stop)

    def stop_when_empty(self) -> None:
        """Stop when the last client has gone."""
        self._until_empty = True

    def stop(self) -> None:
        """Stop after the present round."""
        self._stopping = True

    def run(self) -> int:
        """Serve; return how many GPUs could not be put back."""
        with self._signals():
            try:
                while not self._stopping and (self._sessions or not self._until_empty):
                    for key, _ in self._selector.select(self._patience_s()):
                        key.data()
                    for session in tuple(self._sessions):
                        session.step()
                        if session.idle:
                            self._end(session)
            finally:
                failures = sum(self._end(session) for session in tuple(self._sessions))
                self._selector.close()
        return failures

    def _patience_s(self) -> float:
        due_s = [due for session in self._sessions if (due := session.due_s()) is not None]
        return max(0.0, min([_IDLE_S, *(due - time.monotonic() for due in due_s)]))

    def _hear(self, session: Session) -> None:
        if not session.receive():
            self._end(session)

    def _welcome(self, accept: Accept) -> None:
        session = accept()
        if session is not None:
            self.serve(session)

    def _end(self, session: Session) -> bool:
        if session not in self._sessions:
            return False
        self._sessions.discard(session)
        self._selector.unregister(session.socket)
        failure = session.end()
        if failure is not None:
            _complain(f"clock not put back: {failure}; perseus-ds clocks reset will")
        return failure is not None

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into one readable byte; they stay harmless until the process has ended."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        self.stop_when_readable(ours.fileno())
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            ours.close()
            theirs.close()


def _complain(line: str) -> None:
    """Say it on a terminal or log that may be gone with the job."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"perseus_ds guard: {line}\n")
        sys.stderr.flush()
