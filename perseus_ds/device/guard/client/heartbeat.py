"""The beats of a client and their answers: whether the guard at the other end still does its work."""

from __future__ import annotations

import time
from collections.abc import Callable

_BEATS_PER_LEASE = 3
_LONGEST_S = 1.0


class Heartbeat:
    """When the next beat is due, and for how long no answer has come.

    A guard that says nothing for a whole lease hangs, as a client does that is silent for as long. Until it
    has said that it answers beats (``answered``), nothing is concluded.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lease_s = lease_s
        self._every_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_S)
        self.answered = False
        self.start()

    def start(self) -> None:
        """Begin with a guard that has just spoken."""
        self._due_s = self._heard_s = self._now_s()
        self.beaten()

    def left_s(self) -> float:
        """Seconds until the next beat is due."""
        return max(0.0, self._due_s - self._now_s())

    def beaten(self) -> None:
        """Note that a beat was sent."""
        self._due_s = self._now_s() + self._every_s

    def heard(self) -> None:
        """Note that the guard has spoken."""
        self._heard_s = self._now_s()

    @property
    def in_doubt(self) -> bool:
        """Whether a beat should have been answered by now: for two periods nothing was heard."""
        return self._silent_for(2 * self._every_s)

    @property
    def hangs(self) -> bool:
        """Whether the guard has been silent for a lease."""
        return self._silent_for(self._lease_s)

    def _silent_for(self, seconds: float) -> bool:
        return self.answered and self._now_s() > self._heard_s + seconds
