"""Lines in the job's log and events in the run directory: from rank 0 alone, each line once."""

from __future__ import annotations

import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds.run_directory import RunDirectory, append_event

_engines: set[int] = set()
"""The numbers of all that were served in this process."""
_PATIENCE_S = 0.5


class EventLog:
    """Lines on standard output and events in the run directory, from rank 0 alone.

    Where a process trains several engines, lines name theirs: ``engine`` is its number. ``run`` names this
    run in the files that it leaves: a run directory may hold files of an earlier one.
    """

    def __init__(self, rank: int, *, engine: int = 1) -> None:
        self.run = secrets.token_hex(6)
        self._rank = rank
        self._engine = engine
        _engines.add(engine)
        self._directory: RunDirectory | None = None
        self._said: set[str] = set()
        self._writes = LateWrites()

    def writes_to(self, directory: RunDirectory) -> None:
        """Record events from now on."""
        self._directory = directory

    def line(self, line: str) -> None:
        """Print one line, if this is rank 0."""
        if self._rank == 0:
            self.line_here(line)

    def line_here(self, line: str) -> None:
        """Print one line on whatever rank this is: for what only this rank knows."""
        whose = f"engine {self._engine}: " if max(_engines, default=1) > 1 else ""
        sys.stdout.write(f"perseus: {whose}{line}\n")
        sys.stdout.flush()

    def line_once(self, line: str) -> None:
        """Print one line unless it was printed before."""
        if line not in self._said:
            self._said.add(line)
            self.line(line)

    def event(self, event: str, line: str | None = None, **facts: object) -> None:
        """Record an event, and print its line if it has one."""
        if self._rank == 0 and self._directory is not None:
            self._record(self._directory, event, facts | ({"line": line} if line else {}))
        if line is not None:
            self.line(line)

    def event_once(self, event: str, line: str, **facts: object) -> None:
        """Record an event and print its line, unless that was done before."""
        if line not in self._said:
            self._said.add(line)
            self.event(event, line, **facts)

    def write(self, path: Path, act: Callable[[], object]) -> None:
        """Write a file beside the journal; a full disk costs the file, not the work."""
        try:
            over = self._writes.write(act)
        except OSError as error:
            self.line(f"{path} is not written: {error.strerror}")
        else:
            self._note_whether(over)

    def _record(self, directory: RunDirectory, event: str, facts: Mapping[str, object]) -> None:
        """Append to the journal; a full disk ends the journal, not the work."""
        at = datetime.now(UTC)
        try:
            over = self._writes.write(lambda: append_event(directory.events, event, facts, at=at))
        except OSError as error:
            self._directory = None
            self.line(f"{directory.events} is not written any more: {error.strerror}")
        else:
            self._note_whether(over)

    def _note_whether(self, over: bool) -> None:  # noqa: FBT001
        if not over:
            self.line_once("the disk of the run directory is slow: training does not wait for its files")


class LateWrites:
    """Writes beside the training, in their order, by a thread that lives as long as there are any.

    On an ordinary disk a write is over when `write` returns. On one that does not answer the caller waits
    once, and not again before the disk has caught up.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write(self, act: Callable[[], object]) -> bool:
        """Write, after all before it; return whether that is over.

        Raises:
            OSError: this write failed, or one before it that was not waited for.
        """
        with self._lock:
            self._waiting.append(act)
            idle = self._thread is None
            if idle:
                self._thread = threading.Thread(target=self._drain, name="perseus-disk", daemon=True)
                self._thread.start()
            thread = self._thread
        if idle and thread is not None:
            thread.join(self._patience_s)
        with self._lock:
            error, self._error = self._error, None
            over = self._thread is None
        if error is not None:
            raise error
        return over

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                act = self._waiting.popleft()
            try:
                act()
            except OSError as error:
                self._error = error
