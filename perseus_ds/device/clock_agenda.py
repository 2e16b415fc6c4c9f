"""Clock requests by the moment that they are due: one rule for guards, for threads and for virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

LATE_S = 0.005
"""From when on a change that is stored later than planned counts as late, in wall-clock seconds."""
_MOST = 0.01
_OVERDUE_LATENCIES = 3.0
_LEAST_OVERDUE_S = 0.05


@dataclass(frozen=True, slots=True)
class DatedClock:
    """Clocks to ask for at a moment of the device's time; None is the device's own choice.

    ``number`` counts requests in the order of the stream.
    """

    due_s: float
    clock_mhz: int | None
    memory_mhz: int | None = None
    number: int = 0


@dataclass(slots=True)
class RequestCounts:
    """Counts of changes that reached the device so far, and of requests that missed their moment.

    ``late`` came more than LATE_S after it. ``overtaken`` were dropped at it or after it, since a newer one
    was due by then. One that gave way before its moment has missed nothing: its computation ended early.
    """

    changes: int = 0
    late: int = 0
    overtaken: int = 0
    longest_late_s: float = 0.0

    def record_change(self, *, late_s: float = 0.0) -> None:
        """Count one change that reached the device."""
        self.changes += 1
        self.late += late_s > LATE_S
        self.longest_late_s = max(self.longest_late_s, late_s)

    @property
    def missed(self) -> float:
        """Return the number of changes that missed their moment."""
        return (self.late + self.overtaken) / max(self.changes + self.overtaken, 1)

    def missed_note(self) -> str:
        """Return one line, where that is more than a hundredth of all."""
        if self.missed <= _MOST:
            return ""
        return (
            f"{100.0 * self.missed:.1f} % of {self.changes + self.overtaken} changes of clock missed their"
            f" moment: {self.late} came more than {1e3 * LATE_S:g} ms late (at most"
            f" {1e3 * self.longest_late_s:.0f} ms), {self.overtaken} were overtaken. Within"
            " objective.changes_per_s a plan asks less often"
        )


class DatedClocks(Protocol):
    """Whoever asks a device for clocks at their moments."""

    @property
    def counts(self) -> RequestCounts:
        """Outcome of all requests so far."""

    def ask(self, requests: Sequence[DatedClock]) -> None:
        """Have clocks asked for, in the order of the stream, or raise why an earlier request was refused."""

    def close(self) -> None:
        """Give the clocks back to the device; what is not due yet is dropped."""


def overdue_s(latency_s: float, *, slow_call_s: float = 0.0) -> float:
    """Return how long after its moment a higher clock that is not stored is known to be missing.

    Three latencies, but not less than a slow call of this driver (one of a hundred). Nor is it less than a
    busy host takes to wake the calling thread. Where latencies are milliseconds, three of them prove nothing.
    """
    return max(_OVERDUE_LATENCIES * latency_s, slow_call_s, _LEAST_OVERDUE_S)


class ClockAgenda:
    """Requests that wait for their moment, in the order of the stream and of their moments alike.

    A newer request is for what comes after, so that an older one which is due later has no turn left. Of
    several that are due together the newest is for the present; those before it came too late.
    """

    def __init__(self) -> None:
        self._waiting: deque[DatedClock] = deque()
        self.counts = RequestCounts()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[DatedClock]:
        return iter(self._waiting)

    @property
    def due_s(self) -> float | None:
        return self._waiting[0].due_s if self._waiting else None

    def put(self, request: DatedClock) -> None:
        """Enter a request, the newest of the stream."""
        while self._waiting and self._waiting[-1].due_s > request.due_s:
            self._waiting.pop()
        self._waiting.append(request)

    def drop_missed(self, now_s: float) -> None:
        """Drop requests that a newer one, due by now, supersedes; count those that missed their moment."""
        while len(self._waiting) > 1 and self._waiting[1].due_s <= now_s:
            missed = self._waiting.popleft()
            # rest between iterations may give way
            self.counts.overtaken += missed.clock_mhz is not None and missed.due_s < self._waiting[0].due_s

    def take(self, now_s: float) -> DatedClock | None:
        """Return the request for the present; None where nothing new is due."""
        self.drop_missed(now_s)
        return self._waiting.popleft() if self._waiting and self._waiting[0].due_s <= now_s else None

    def pop(self) -> DatedClock:
        return self._waiting.popleft()

    def clear(self) -> None:
        self._waiting.clear()
