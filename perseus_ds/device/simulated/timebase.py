"""Where a simulated GPU's time comes from: a clock of its own, or the host's, scaled."""

from __future__ import annotations

import ctypes
import heapq
import math
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

_PR_SET_TIMERSLACK = 29
_WAKE_S = 120e-6  # a sleeper wakes about 90 us late on a busy two-core machine: the rest is spun
_sharpened = threading.local()

Act = Callable[[], None]


class TimeBase(Protocol):
    """A clock and a way to wait on it; waiting holds ``condition``'s lock and wakes on its notify."""

    def now_s(self) -> float:
        """Device seconds."""

    def wall_s(self, device_s: float) -> float:
        """How long a stretch of device time lasts on the host's clock."""

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Let up to ``for_s`` device seconds pass; waking early is allowed."""

    def sleep(self, for_s: float) -> None:
        """Let ``for_s`` device seconds pass."""


class ScaledTime:
    """The host's monotonic clock over ``time_scale``: the same device time in every process of a node."""

    def __init__(self, time_scale: float) -> None:
        self._time_scale = time_scale

    def now_s(self) -> float:
        """Device seconds: host seconds over the scale."""
        return time.monotonic() / self._time_scale

    def wall_s(self, device_s: float) -> float:
        """Host seconds: device seconds times the scale."""
        return device_s * self._time_scale

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Sleep to just before the end; the last moments are returned at once, for the caller to spin."""
        host_s = for_s * self._time_scale - _WAKE_S
        if host_s > 0:
            _sharpen_timer()
            condition.wait(host_s)

    def sleep(self, for_s: float) -> None:
        """Sleep on the host."""
        time.sleep(self.wall_s(for_s))


class VirtualTime:
    """Time that passes only when its owner waits or lets it pass: the host's pace has no part.

    What is to happen at a moment happens at that moment, on the thread that lets time pass. One thread owns
    it. ``left_at`` is for that one: since when, by the host's clock, it has let no time pass.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self.left_at: float | None = None
        self._due: list[tuple[float, int, Act]] = []
        self._numbers = count()

    def now_s(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def wall_s(self, device_s: float) -> float:
        """Return the same: no host waits for it."""
        return device_s

    def pass_s(self, elapsed_s: float) -> None:
        """Let time pass."""
        self.pass_to(self._now_s + elapsed_s)

    def pass_to(self, moment_s: float) -> None:
        """Let time pass up to a moment, with all that is due meanwhile; one that is over changes nothing."""
        while self._due and self._due[0][0] <= moment_s:
            due_s, _, act = heapq.heappop(self._due)
            self._now_s = max(self._now_s, due_s)
            act()
        self._now_s = max(self._now_s, moment_s)

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment; return what cancels it."""
        entry = (moment_s, next(self._numbers), act)
        heapq.heappush(self._due, entry)

        def cancel() -> None:
            if entry in self._due:
                self._due.remove(entry)
                heapq.heapify(self._due)

        return cancel

    def every(self, period_s: float, act: Act) -> Act:
        """Have something done again and again; return what ends it."""
        pending: list[Act] = []

        def again() -> None:
            pending[:] = [self.at(self._now_s + period_s, again)]
            act()

        def end() -> None:
            pending[0]()

        pending.append(self.at(self._now_s + period_s, again))
        return end

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Jump to the next moment at which something is due; always at least one representable step."""
        del condition
        until_s = max(self._now_s + for_s, math.nextafter(self._now_s, math.inf))
        self.pass_to(min(until_s, self._due[0][0]) if self._due else until_s)

    def sleep(self, for_s: float) -> None:
        """Let it pass."""
        self.pass_s(for_s)


def _sharpen_timer() -> None:
    """Have this thread's sleeps end within about a microsecond instead of Linux's default 50; once."""
    if getattr(_sharpened, "done", False):
        return
    _sharpened.done = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
