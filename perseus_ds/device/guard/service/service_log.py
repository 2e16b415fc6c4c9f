"""The log of the node's service: a line for each event, as words or as JSON for systemd's journal.

A thread of its own writes, so that a log that is full or stopped holds up no clock. Lines that do not fit are
counted, and the next line states their number. Where no service logs, errors alone go to standard error.
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

from perseus_ds.device.guard.complain import complain
from perseus_ds.device.guard.protocol import Value, printable

_MOST_WAITING = 1024
_MOST_ALIKE = 32  # lines of one event of one user within a period: a client that floods us fills no disk
_PERIOD_S = 10.0
_FAREWELL_S = 1.0
_MOST_CHARACTERS = 500
_PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}  # of journald, sd-daemon(3)


def log_event(name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
    """Log an event, without ever waiting; fields of None are left out."""
    extra = {"event": name, "fields": fields}
    _LOGGER.log(level, "%s", printable(message)[:_MOST_CHARACTERS], extra=extra)


class _Complaints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


_LOGGER = logging.getLogger("perseus_ds.guardd")
_LOGGER.propagate = False
_LOGGER.setLevel(logging.INFO)
_COMPLAINTS = _Complaints(logging.ERROR)
_LOGGER.addHandler(_COMPLAINTS)


class ServiceLog(logging.Handler):
    """Lines on standard error, whole and in order."""

    def __init__(self, *, as_json: bool) -> None:
        """``as_json``: one JSON object a line; else words after ``perseus_ds guard:``."""
        super().__init__()
        self.setFormatter(_JsonFormatter() if as_json else _WordsFormatter())
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        self._alike: Counter[tuple[str, Value]] = Counter()
        self._until_s = 0.0
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="perseus-guardd-log", daemon=True)

    def start(self) -> None:
        """Take every event from here on, and begin to write."""
        _LOGGER.removeHandler(_COMPLAINTS)
        _LOGGER.addHandler(self)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written, if there is room."""
        if self._is_too_much(record):
            self._left_out += 1
            return
        record.__dict__["fields"] |= {"left_out": self._left_out or None}
        self._left_out = 0
        self._lines.put_nowait(self.format(record))

    def close(self) -> None:
        """Write what waits, and end; a log that does not take it is not waited for."""
        _LOGGER.removeHandler(self)
        _LOGGER.addHandler(_COMPLAINTS)
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._lines.put(None, timeout=_FAREWELL_S)
            self._thread.join(_FAREWELL_S)
        super().close()

    def _is_too_much(self, record: logging.LogRecord) -> bool:
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._alike.clear()
            self._until_s = now_s + _PERIOD_S
        kind = record.__dict__["event"], record.__dict__["fields"].get("uid")
        self._alike[kind] += 1
        return self._alike[kind] > _MOST_ALIKE or self._lines.full()

    def _write(self) -> None:
        for line in iter(self._lines.get, None):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()


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


def is_journal() -> bool:
    """Whether standard error leads into systemd's journal.

    Source: systemd.exec(5), JOURNAL_STREAM: device and inode of that stream.
    """
    try:
        here = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"
