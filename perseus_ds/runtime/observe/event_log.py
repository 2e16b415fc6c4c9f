"""Lines in the job's log and events in the run directory: from rank 0 alone, each line once."""

from __future__ import annotations

import contextlib
import logging
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory

_engines: set[int] = set()
"""The numbers of all that were served in this process."""
_PATIENCE_S = 0.5
_logger = logging.getLogger("perseus_ds")


class _OwnHandler(logging.Handler):
    """Writes to standard error in a job whose program has configured no handler: its output may be parsed."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or _logger.handlers != [self]:
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as handlers of the standard library do
            self.handleError(record)


def _configure() -> None:
    handler = _OwnHandler()
    handler.setFormatter(logging.Formatter("perseus: %(message)s"))
    _logger.addHandler(handler)
    if _logger.level == logging.NOTSET:
        _logger.setLevel(logging.INFO)


_configure()


def log_line(line: str, *, level: int = logging.INFO) -> None:
    """Log one line of the job; a handler of the program that fails is no reason to stop training."""
    with contextlib.suppress(Exception):
        _logger.log(level, "%s", line)


class EventLog:
    """Lines in the log and events in the run directory, from rank 0 alone.

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
        """Log one line, if this is rank 0."""
        if self._rank == 0:
            log_line(self._named(line))

    def line_here(self, line: str) -> None:
        """Log a warning on whatever rank this is: for what only this rank knows."""
        log_line(self._named(line), level=logging.WARNING)

    def line_once(self, line: str) -> None:
        """Log one line unless it was logged before."""
        if line not in self._said:
            self._said.add(line)
            self.line(line)

    def event(self, event: str, line: str | None = None, **facts: object) -> None:
        """Record an event, and log its line if it has one."""
        if self._rank == 0 and self._directory is not None:
            self._record(self._directory, event, facts | ({"line": line} if line else {}))
        if line is not None:
            self.line(line)

    def event_once(self, event: str, line: str, **facts: object) -> None:
        """Record an event and log its line, unless that was done before."""
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

    def _named(self, line: str) -> str:
        return f"engine {self._engine}: {line}" if max(_engines, default=1) > 1 else line

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
    once, and not again before the disk has caught up. While the interpreter exits there may be no thread:
    from Python 3.12 on none can begin then. Writes are the caller's own from there on.
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
            thread = self._thread
        if idle and thread is not None:
            self._begin(thread)
        with self._lock:
            error, self._error = self._error, None
            over = self._thread is None
        if error is not None:
            raise error
        return over

    def _begin(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # the interpreter exits: no training is left to stall
            self._drain()
        else:
            thread.join(self._patience_s)

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
