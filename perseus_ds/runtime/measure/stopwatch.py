"""When instructions ran, without ever waiting for the device: marks now, seconds later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, cast

from perseus_ds.device.gpu import Gpu

Mark = object
"""A point of the stream; only the stopwatch that took it knows more."""


class Moment(Protocol):
    """A point of the stream that a thread waits for."""

    def wait(self) -> float:
        """Sleep until the device is here; return when that was, by the device's `Gpu.now_s`.

        Infinite where the point was lost: taken while a graph was captured, or on a device that was reset.
        """


class Stopwatch(ABC):
    """Marks are taken on the training thread and turned into seconds when the device has passed them.

    ``behind`` is how many iterations the device may be behind the host.
    """

    behind: int

    @abstractmethod
    def mark(self) -> Mark:
        """Note this point of the stream.

        Cost: a few microseconds; no synchronisation.
        """

    def begin(self) -> Mark:
        """Note where an iteration begins."""
        return self.mark()

    def end(self) -> Mark:
        """Note where an iteration ends: what `passed` and `wait` take."""
        return self.mark()

    @abstractmethod
    def host_s(self) -> float:
        """Read the host's clock, on the time base of `seconds`."""

    @abstractmethod
    def moment(self) -> Moment | None:
        """Note the point of the last mark, to be waited for; None where the host is the device."""

    @abstractmethod
    def passed(self, mark: Mark) -> bool:
        """Whether the device has reached an iteration's end."""

    @abstractmethod
    def wait(self, mark: Mark) -> None:
        """Block until the device has reached an iteration's end; for those an iteration old."""

    @abstractmethod
    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Times of marks that were passed, on the device's time base; not a number where one was lost."""

    def whole(self, first: Mark, last: Mark) -> bool:
        """Whether what lies between two begins or ends of iterations can be believed."""
        del first, last
        return True

    @property
    def captures(self) -> int:
        """How many graphs of the device's work were captured so far."""
        return 0

    def enter_thread(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Begin a thread that waits for moments: the first call that it makes."""

    def trouble(self) -> str:
        """Report once why marks are lost; empty where none are, or after that."""
        return ""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Take no more marks; safe to call twice."""


class HostStopwatch(Stopwatch):
    """For devices that run when the host calls: the mark is the time."""

    behind = 0

    def __init__(self, gpu: Gpu) -> None:
        self._now_s = gpu.now_s

    def mark(self) -> Mark:
        """Read the time."""
        return self._now_s()

    def host_s(self) -> float:
        """Read the time."""
        return self._now_s()

    def moment(self) -> None:
        """Return nothing: there is no stream."""

    def passed(self, mark: Mark) -> bool:
        """Return True: the host is the device."""
        del mark
        return True

    def wait(self, mark: Mark) -> None:
        """Return at once."""

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Return the marks: they are the times."""
        return cast("list[float]", list(marks))
