"""Threads, queues and the host's time as a parameter: real ones, or those of a host in virtual time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")


class Thread(Protocol):
    """One that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most so many host seconds."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


class Queue(Protocol[T]):
    """First in, first out, between threads."""

    def put(self, item: T) -> None:
        """Add an item; never blocks."""

    def get(self, *, timeout: float | None = None) -> T:
        """Take the oldest item.

        Raises:
            queue.Empty: none came within ``timeout`` host seconds.
        """


class Threads(Protocol):
    """Where threads come from, and what time they live by."""

    def start(self, run: Callable[[], None], *, name: str) -> Thread:
        """Start a thread that does not keep the process from ending."""

    def queue(self, kind: type[T]) -> Queue[T]:
        """Make a queue for items of one kind."""

    def lock(self) -> AbstractContextManager[object]:
        """Make a lock."""

    def sleep(self, for_s: float, /) -> None:
        """Let host seconds pass."""

    def now_s(self) -> float:
        """Read the host's monotonic clock."""


class HostThreads:
    """The interpreter's own."""

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    lock = staticmethod(threading.Lock)

    def start(self, run: Callable[[], None], *, name: str) -> Thread:
        """Start a daemon thread."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def queue(self, kind: type[T]) -> Queue[T]:
        """Make a `SimpleQueue`."""
        del kind
        return SimpleQueue[T]()
