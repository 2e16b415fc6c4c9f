"""The beats of a client and their answers: whether the guard at the other end still does its work."""

from __future__ import annotations

import time
from collections.abc import Callable

_BEATS_PER_LEASE = 3
_LONGEST_S = 1.0
_DOUBTED = 3  # beats without an answer, so that two had their time


class Heartbeat:
    """When the next beat is due, and how many were sent since the guard's last answer.

    A guard that answers none for a lease hangs. Beats are counted and not seconds: a job that was suspended,
    or starved, has sent none meanwhile. Until the guard has announced that it ``answers`` beats, nothing is
    concluded.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._every_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_S)
        self._most = 1 + round(lease_s / self._every_s)
        self.answers = False
        self.start()

    def start(self) -> None:
        """Begin with a guard that has just answered."""
        self._unanswered = 0
        self._due_s = self._now_s() + self._every_s

    def left_s(self) -> float:
        """Seconds until the next beat is due."""
        return max(0.0, self._due_s - self._now_s())

    def beaten(self) -> None:
        """Note that a beat was sent, after what had arrived until then was read."""
        self._unanswered += 1
        self._due_s = self._now_s() + self._every_s

    def heard(self) -> None:
        """Note that the guard has answered."""
        self._unanswered = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the guard does not answer just now."""
        return self.answers and self._unanswered >= _DOUBTED

    @property
    def hangs(self) -> bool:
        """Whether the guard has not answered for a lease."""
        return self.answers and self._unanswered >= self._most
