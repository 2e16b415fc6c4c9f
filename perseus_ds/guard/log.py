"""The guard's log, over the standard library's `logging`: logger ``perseus_ds.guardd``.

The service adds a handler that writes words, or a JSON object a line for systemd's journal. A thread of its
own writes, so that a log that is full or stopped delays no clock. Lines that do not fit are counted, and the
next line states their number. Without a service errors alone go to standard error, which may be gone with the
job.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime

from perseus_ds.errors import DeviceError
from perseus_ds.guard.protocol import Value, printable

_MAX_WAITING = 1024
_MAX_ALIKE = 32  # lines of one event of one user within a period: a client that floods us fills no disk
_PERIOD_S = 10.0
_FAREWELL_S = 1.0
_MAX_CHARACTERS = 500
_PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}  # of journald, sd-daemon(3)


def log_event(name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
    """Log an event, without ever waiting; fields of None are left out."""
    extra = {"event": name, "fields": fields}
    _LOGGER.log(level, "%s", printable(message)[:_MAX_CHARACTERS], extra=extra)


def log_error(message: str) -> None:
    """Print an error of the trainer's side of a guard."""
    _print(f"perseus_ds guard: {message}")


def not_restored(error: DeviceError) -> str:
    """State that a clock may stay locked, and what tries again."""
    return (
        f"clock not put back, though the driver was asked for 30 s: {error}; "
        "perseus-ds clocks reset, or the next start, tries again"
    )


def is_journal() -> bool:
    """Whether standard error leads into systemd's journal.

    Source: systemd.exec(5), JOURNAL_STREAM: device and inode of that stream.
    """
    try:
        here = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"


class ServiceLog(logging.Handler):
    """Lines on standard error, whole and in order."""

    def __init__(self, *, as_json: bool) -> None:
        """Take every event from here on; ``as_json``: one JSON object a line, else words."""
        super().__init__()
        self.setFormatter(_JsonFormatter() if as_json else _WordsFormatter())
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._alike: Counter[tuple[str, Value]] = Counter()
        self._until_s = 0.0
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="perseus-guardd-log", daemon=True)
        _LOGGER.removeHandler(_ERRORS)
        _LOGGER.addHandler(self)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written, if there is room."""
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._alike.clear()
            self._until_s = now_s + _PERIOD_S
        kind = record.__dict__["event"], record.__dict__["fields"].get("uid")
        self._alike[kind] += 1
        if self._alike[kind] > _MAX_ALIKE or self._lines.full():
            self._left_out += 1
            return
        record.__dict__["fields"] |= {"left_out": self._left_out or None}
        self._left_out = 0
        self._lines.put_nowait(self.format(record))

    def close(self) -> None:
        """Write what waits, and end; a log that does not take it is not waited for."""
        _LOGGER.removeHandler(self)
        _LOGGER.addHandler(_ERRORS)
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=_FAREWELL_S)
        self._thread.join(_FAREWELL_S)
        super().close()

    def _write(self) -> None:
        for line in iter(self._lines.get, None):
            _print(line)


class _Errors(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log_error(record.getMessage())


class _WordsFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        left_out = record.__dict__["fields"]["left_out"]
        return f"perseus_ds guard: {record.getMessage()}{f' ({left_out} lines left out)' if left_out else ''}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.__dict__["event"],
            "message": record.getMessage(),
            **{key: value for key, value in record.__dict__["fields"].items() if value is not None},
        }
        return f"{f'<{_PRIORITIES[record.levelno]}>' if is_journal() else ''}{json.dumps(entry)}"


def _print(line: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be gone
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


_LOGGER = logging.getLogger("perseus_ds.guardd")
_LOGGER.propagate = False
_LOGGER.setLevel(logging.INFO)
_ERRORS = _Errors(logging.ERROR)
_LOGGER.addHandler(_ERRORS)
