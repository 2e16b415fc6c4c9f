"""Requests for moments to come, handed to a guard that makes each in its own process, and what it reports."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perseus_ds.device.clock_agenda import DatedClock, RequestCounts, overdue_s
from perseus_ds.device.guard.client.send_queue import SendQueue
from perseus_ds.device.guard.protocol import Message, Value
from perseus_ds.errors import DeviceError

_MOST_UNKNOWN = 4096
_REPORT: Message = {"do": "report"}


@dataclass(frozen=True, slots=True)
class _Raise:
    """A higher clock that was asked for, and is not known to be stored."""

    number: int
    due_s: float


class DatedRequests:
    """Ask a guard ahead of time; it writes each clock when it is due, whatever this process does by then.

    The guard reports which requests are done, and how long its driver's slow calls take. It is asked for one
    behind other requests. It is also asked at a call of `look`, when a higher clock is overdue as far as is
    known here (`overdue_s`). At most one question is open at a time.
    """

    def __init__(self, send_queue: SendQueue, refused: Callable[[], DeviceError | None]) -> None:
        self.counts = RequestCounts()
        self._before = RequestCounts()
        self._send_queue = send_queue
        self._refused = refused
        self._patience_s = float("inf")
        self._raises: deque[_Raise] = deque(maxlen=_MOST_UNKNOWN)
        self._clock_mhz: int | None = None
        self._questioned_s: float | None = None
        self._late_raises = self._reported_overtaken = self._dropped = 0
        self._behind = False
        self._lock = threading.Lock()

    def expect(self, latency_s: float) -> None:
        """Note how long a change takes, and so when a higher clock is overdue."""
        self._patience_s = overdue_s(latency_s)

    def ask(self, requests: Sequence[DatedClock]) -> None:
        """Hand requests over; never blocks.

        Raises:
            DeviceError: the guard refused an earlier request, or is gone; or a memory clock is asked for.
        """
        refused = self._refused()
        if refused is not None:
            raise refused
        with self._lock:
            behind = _REPORT if self._wants_report() else None
            clocks = [(one.clock_mhz, one.due_s) for one in requests]
            number = self._send_queue.request(*clocks, behind=behind)
            self._count_dropped()
            for place, one in enumerate(requests, start=number + 1 - len(requests)):
                if self._clock_mhz is not None and (one.clock_mhz is None or one.clock_mhz > self._clock_mhz):
                    self._raises.append(_Raise(place, one.due_s))
                self._clock_mhz = one.clock_mhz

    def close(self) -> None:
        """Give the clock back now; what is not due yet gives way."""
        if self._refused() is None:
            self._send_queue.request((None, None))

    def look(self) -> bool:
        """Ask for a report if it is time; return whether all higher clocks are stored, as far as is known.

        Cost: one packet at most; never blocks.
        """
        with self._lock:
            if self._wants_report():
                self._send_queue.send(_REPORT)
            asked_s = self._questioned_s
            unanswered = asked_s is not None and time.monotonic() > asked_s + self._patience_s
            return not (unanswered or self._behind)

    def begin_anew(self) -> None:
        """Go on with another guard, which counts from nothing."""
        with self._lock:
            self._before = replace(self.counts)
            self._questioned_s, self._late_raises, self._reported_overtaken = None, 0, 0
            self._raises.clear()

    def learn(self, report: Message) -> bool:
        """Take in a report; return whether a higher clock came late that was not reported yet."""
        with self._lock:
            number, at_s = int(_number(report, "number")), _number(report, "at_s")
            self._patience_s = max(self._patience_s, _number(report, "slow_call_s"))
            before = self._before
            self.counts.changes = before.changes + int(_number(report, "changes"))
            self.counts.late = before.late + int(_number(report, "late"))
            overtaken = int(_number(report, "overtaken"))
            self.counts.overtaken += overtaken - self._reported_overtaken
            self._reported_overtaken = overtaken
            self._count_dropped()
            self.counts.longest_late_s = max(before.longest_late_s, _number(report, "longest_late_s"))
            while self._raises and self._raises[0].number <= number:
                self._raises.popleft()
            self._questioned_s = None
            late_raises, was_behind = int(_number(report, "late_raises")), self._behind
            self._behind = bool(self._raises) and at_s > self._raises[0].due_s + self._patience_s
            news = late_raises > self._late_raises or (self._behind and not was_behind)
            self._late_raises = max(self._late_raises, late_raises)
            return news

    def _count_dropped(self) -> None:
        """Count what missed its moment on the way to the guard, for want of room."""
        self.counts.overtaken += self._send_queue.overtaken - self._dropped
        self._dropped = self._send_queue.overtaken

    def _wants_report(self) -> bool:
        """Whether a question is due; from then on it is on its way."""
        now_s = time.monotonic()
        due = bool(self._raises) and now_s > self._raises[0].due_s + self._patience_s
        if not due or self._questioned_s is not None:
            return False
        self._questioned_s = now_s
        return True


def _number(message: Message, key: str) -> float:
    value: Value = message.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
