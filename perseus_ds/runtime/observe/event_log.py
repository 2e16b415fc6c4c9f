"""Lines in the job's log and events in the run directory: from rank 0 alone, each line once."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar

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
    """Writes beside the training, in their order, by one daemon thread for all engines of the process.

    On an ordinary disk a write is over when `write` returns. On one that does not answer the caller waits
    once, and not again before the disk has caught up. From Python 3.12 on no thread can begin while the
    interpreter exits, so the thread lives as long as the process and serves its exit handlers as well.
    """

    _acts: ClassVar[SimpleQueue[Callable[[], None]]] = SimpleQueue()
    _thread: ClassVar[threading.Thread | None] = None
    _thread_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._pending = 0
        self._error: OSError | None = None

    def write(self, act: Callable[[], object]) -> bool:
        """Write, after all before it; return whether that is over.

        Raises:
            OSError: this write failed, or one before it that was not waited for.
        """
        over = threading.Event()
        with self._lock:
            idle = self._pending == 0
            self._pending += 1
        self._put(lambda: self._do(act, over))
        if idle:
            over.wait(self._patience_s)
        with self._lock:
            error, self._error = self._error, None
            done = self._pending == 0
        if error is not None:
            raise error
        return done

    def _do(self, act: Callable[[], object], over: threading.Event) -> None:
        error = None
        try:
            act()
        except OSError as failed:
            error = failed
        finally:
            with self._lock:
                self._pending -= 1
                self._error = error or self._error
            over.set()

    @classmethod
    def _put(cls, act: Callable[[], None]) -> None:
        with cls._thread_lock:
            if cls._thread is None or not cls._thread.is_alive():  # the first, or a forked process
                cls._thread = threading.Thread(target=cls._drain, name="perseus-disk", daemon=True)
                try:
                    cls._thread.start()
                except RuntimeError:  # the interpreter exits: no training is left to stall
                    cls._thread = None
            if cls._thread is not None:
                cls._acts.put(act)
                return
        act()

    @classmethod
    def _drain(cls) -> None:
        while True:
            act = cls._acts.get()
            with contextlib.suppress(Exception):  # a fault of one file keeps no other from being written
                act()
            del act
