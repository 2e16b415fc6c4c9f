"""When instructions ran, without ever waiting for the device: marks now, seconds later."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, cast

import torch

from perseus_ds.device import Gpu

Mark = float | torch.cuda.Event


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

    @abstractmethod
    def moment(self) -> Moment | None:
        """Note this point of the stream, to be waited for; None where the host is the device."""

    @abstractmethod
    def passed(self, mark: Mark) -> bool:
        """Whether the device has reached the mark."""

    @abstractmethod
    def wait(self, mark: Mark) -> None:
        """Block until the device has reached the mark; for marks an iteration old."""

    @abstractmethod
    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Times of marks that have been passed, on the device's time base."""


class HostStopwatch(Stopwatch):
    """For devices that run when the host calls: the mark is the time."""

    behind = 0

    def __init__(self, gpu: Gpu) -> None:
        self._now_s = gpu.now_s

    def mark(self) -> Mark:
        """Read the time."""
        return self._now_s()

    def moment(self) -> None:
        """Return nothing: there is no stream."""

    def passed(self, mark: Mark) -> bool:
        """Say yes: the host is the device."""
        del mark
        return True

    def wait(self, mark: Mark) -> None:
        """Return at once."""

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Return the marks: they are the times."""
        return cast("list[float]", list(marks))


class _CudaMoment:
    """An event to sleep on, which is timed too."""

    def __init__(self, stopwatch: CudaStopwatch) -> None:
        self._stopwatch = stopwatch
        self._event = stopwatch.event(blocking=True)

    def wait(self) -> float:
        """Sleep until the device is here; return when that was."""
        try:
            self._event.synchronize()
            return self._stopwatch.seconds([self._event])[0]
        except RuntimeError:  # whatever CUDA says: this point is lost
            return math.inf


class CudaStopwatch(Stopwatch):
    """For CUDA, where the host runs ahead: an event in the current stream, read when it has passed.

    One event, awaited once at the start, ties the stream's time to the host's.
    """

    behind = 1

    def __init__(self, gpu: Gpu) -> None:
        self._anchor = self.event()
        self._anchor.synchronize()
        self._anchor_s = gpu.now_s()

    def mark(self) -> Mark:
        """Record an event in the current stream."""
        return self.event()

    def passed(self, mark: Mark) -> bool:
        """Ask the event."""
        return bool(cast("torch.cuda.Event", mark).query())  # type: ignore[no-untyped-call]

    def wait(self, mark: Mark) -> None:
        """Wait for the event alone, not for the device."""
        cast("torch.cuda.Event", mark).synchronize()

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Count from the anchor."""
        return [
            self._anchor_s + self._anchor.elapsed_time(cast("torch.cuda.Event", mark)) * 1e-3
            for mark in marks
        ]

    def moment(self) -> Moment:
        """Record an event to sleep on."""
        return _CudaMoment(self)

    def event(self, *, blocking: bool = False) -> torch.cuda.Event:
        """Record an event in the current stream."""
        event = torch.cuda.Event(enable_timing=True, blocking=blocking)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream())
        return event


def stopwatch_for(gpu: Gpu, *, device_type: str) -> Stopwatch:
    """Choose by where the engine's tensors live."""
    return CudaStopwatch(gpu) if device_type == "cuda" else HostStopwatch(gpu)
