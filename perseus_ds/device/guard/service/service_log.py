"""What the node's service logs: a line for each event, as words or as JSON for systemd's journal.

The service and its leases call it. A thread of its own writes, so that a log that is full or stopped holds up
no clock. Lines that do not fit are counted, and the next line states their number.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum

from perseus_ds.device.guard.protocol import Value, printable

_MOST_WAITING = 1024
_MOST_ALIKE = 32  # lines of one event of one user within a period: a client that floods us fills no disk
_PERIOD_S = 10.0
_FAREWELL_S = 1.0
_MOST_CHARACTERS = 500


class Severity(IntEnum):
    """How grave an event is, by the numbers that journald knows (sd-daemon(3))."""

    ERROR = 3
    WARNING = 4
    INFO = 6


class ServiceLog:
    """Lines on standard error, whole and in order; `event` never waits."""

    def __init__(self, *, as_json: bool) -> None:
        """``as_json``: one JSON object a line; else words after ``perseus_ds guard:``."""
        self._as_json = as_json
        self._priorities = as_json and is_journal()
        self._lines: deque[str] = deque()
        self._wake = threading.Condition()
        self._alike: Counter[tuple[str, Value]] = Counter()
        self._until_s = 0.0
        self._left_out = 0
        self._closing = False
        self._thread = threading.Thread(target=self._write, name="perseus-guardd-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def event(
        self, name: str, message: str, fields: Mapping[str, Value], severity: Severity = Severity.INFO
    ) -> None:
        """Note an event; fields of None are left out."""
        moment_s = time.time()
        with self._wake:
            if self._is_too_much(name, fields):
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
            self._lines.append(
                self._line(name, message, {**fields, "left_out": left_out or None}, severity, moment_s)
            )
            self._wake.notify()

    def close(self) -> None:
        """Write what waits, and end; a log that does not take it is not waited for."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(_FAREWELL_S)

    def _is_too_much(self, name: str, fields: Mapping[str, Value]) -> bool:
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._alike.clear()
            self._until_s = now_s + _PERIOD_S
        self._alike[name, fields.get("uid")] += 1
        return self._alike[name, fields.get("uid")] > _MOST_ALIKE or len(self._lines) >= _MOST_WAITING

    def _line(
        self, name: str, message: str, fields: Mapping[str, Value], severity: Severity, moment_s: float
    ) -> str:
        message = printable(message)[:_MOST_CHARACTERS]
        if not self._as_json:
            left_out = f" ({fields['left_out']} lines left out)" if fields["left_out"] else ""
            return f"perseus_ds guard: {message}{left_out}\n"
        at = datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="milliseconds")
        known = {key: value for key, value in fields.items() if value is not None}
        entry = {"time": at, "level": severity.name.lower(), "event": name, "message": message, **known}
        priority = f"<{severity.value}>" if self._priorities else ""
        return f"{priority}{json.dumps(entry)}\n"

    def _write(self) -> None:
        while True:
            with self._wake:
                while not self._lines and not self._closing:
                    self._wake.wait()
                lines, ends = [*self._lines], self._closing
                self._lines.clear()
            for line in lines:
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    sys.stderr.write(line)
                    sys.stderr.flush()
            if ends:
                return


def is_journal() -> bool:
    """Whether standard error leads into systemd's journal.

    Source: systemd.exec(5), JOURNAL_STREAM: device and inode of that stream.
    """
    try:
        here = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"
