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

from perseus_ds.device.gpu import ConflictKind
from perseus_ds.errors import DeviceError
from perseus_ds.guard.policy import Peer
from perseus_ds.guard.protocol import Value, printable
from perseus_ds.guard.writer import Control

# The one line that must be written though nobody may be left to read it.


def complain(line: str) -> None:
    """Write it on a terminal or log that may be gone with the job."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"perseus_ds guard: {line}\n")
        sys.stderr.flush()


def not_restored(error: DeviceError) -> str:
    """State that a clock may stay locked, and what tries again."""
    return (
        f"clock not put back, though the driver was asked for 30 s: {error}; "
        "perseus-ds clocks reset, or the next start, tries again"
    )


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


# What is logged of one client: the lease that it takes, its conflicts and refusals, and how it ends.


class LeaseLog:
    """Lines about a client, each with who it is, its lease and GPU."""

    def __init__(self, peer: Peer, number: int = 0) -> None:
        self._peer = peer
        self._number = number
        self._control: Control | None = None
        self._owner = ""
        self._since_s = 0.0
        self._failure = ""
        self._lapsed = False

    def taken(self, control: Control, owner: str) -> None:
        """Log that it has a GPU now."""
        self._control, self._owner, self._since_s = control, owner, time.monotonic()
        self._event(
            "lease_taken",
            f"{control.claim.uuid} is taken by {owner} ({self._peer})",
            restore_clock_mhz=control.claim.restore_clock_mhz,
        )

    def refused(self, error: DeviceError, uuid: Value = None) -> None:
        """Log what it is refused; of a driver that refuses its clocks only what is new."""
        if self._control is not None and error.message == self._failure:
            return
        self._failure = error.message if self._control is not None else ""
        name = "lease_refused" if self._control is None else "clock_refused"
        said = f"refused to {self._owner or self._peer}: {error.message}"
        named: dict[str, Value] = {} if self._control is not None or uuid is None else {"gpu": str(uuid)[:80]}
        self._event(name, said, logging.WARNING, why=error.message, **named)

    def conflict(self, kind: ConflictKind, line: str) -> None:
        """Log who else is at work on its GPU."""
        self._event("conflict", f"{self._uuid}: {line}", logging.WARNING, kind=kind.name.lower(), why=line)

    def looked(self) -> None:
        """Log once that it sends nothing for too long, or sends again."""
        control = self._control
        if control is None or control.lapsed == self._lapsed:
            return
        self._lapsed = control.lapsed
        if self._lapsed:
            why = "the client sent nothing for too long: the clock is put back"
            self._event("lease_lapsed", f"{self._uuid}: {why}", logging.WARNING, why=why)
        else:
            self._event("lease_renewed", f"{self._uuid}: the client sends again")

    def ended(self, why: str, clock_mhz: int | None, failure: DeviceError | None) -> None:
        """Log how it ended, with what was set meanwhile; ``failure``: its clock is not put back."""
        if self._control is None:
            return
        report, held_s = self._control.report(), time.monotonic() - self._since_s
        after = "the clock is put back" if failure is None else not_restored(failure)
        self._event(
            "lease_ended",
            f"{self._uuid} was held for {held_s:.0f} s by {self._owner} ({self._peer}); {why}; {after}",
            logging.INFO if failure is None else logging.ERROR,
            why=why,
            held_s=round(held_s, 3),
            clock_mhz=clock_mhz,
            clock_changes=report.changes,
            late_changes=report.late,
            overtaken_requests=report.overtaken,
            restored=failure is None,
            failure=None if failure is None else failure.message,
        )

    @property
    def _uuid(self) -> str:
        return "" if self._control is None else self._control.claim.uuid

    def _event(self, name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
        who: dict[str, Value] = {
            "uid": self._peer.uid,
            "pid": self._peer.pid,
            "cgroup": self._peer.cgroup or None,
        }
        if self._control is not None:
            clock_mhz = self._control.clock_mhz
            who |= {"lease": self._number, "gpu": self._uuid, "owner": self._owner, "clock_mhz": clock_mhz}
        log_event(name, message, level, **who | fields)
