"""Where a simulated GPU's time comes from: the host's clock, scaled, or a clock of our own in tests."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import Protocol

_PR_SET_TIMERSLACK = 29
_WAKE_S = 120e-6  # a sleeper wakes about 90 us late on a busy two-core machine: the rest is spun
_sharpened = threading.local()


class TimeBase(Protocol):
    """A clock and a way to wait on it; waiting holds ``condition``'s lock and wakes on its notify."""

    def now_s(self) -> float:
        """Device seconds."""

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Let up to ``for_s`` device seconds pass; waking early is allowed."""


class ScaledTime:
    """The host's monotonic clock over ``time_scale``: the same device time in every process of a node."""

    def __init__(self, time_scale: float) -> None:
        self._time_scale = time_scale

    def now_s(self) -> float:
        """Device seconds: host seconds over the scale."""
        return time.monotonic() / self._time_scale

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Sleep to just before the end; the last moments are returned at once, for the caller to spin."""
        host_s = for_s * self._time_scale - _WAKE_S
        if host_s > 0:
            _sharpen_timer()
            condition.wait(host_s)


class VirtualTime:
    """Time that passes only when somebody waits or calls `pass_s`: tests and replays in no time."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def pass_s(self, elapsed_s: float) -> None:
        """Let time pass."""
        self._now_s += elapsed_s

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Jump; never less than one representable step, so that a waiting loop always ends."""
        del condition
        self._now_s = max(self._now_s + for_s, self._now_s * (1 + sys.float_info.epsilon))


def _sharpen_timer() -> None:
    """Have this thread's sleeps end within about a microsecond instead of Linux's default 50; once."""
    if getattr(_sharpened, "done", False):
        return
    _sharpened.done = True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
