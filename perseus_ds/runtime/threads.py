"""Threads, queues and the host's time, as one object: tests put a host in virtual time in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class HostThreads:
    """The interpreter's own threads, queues and locks, and the host's monotonic clock."""

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    lock = staticmethod(threading.Lock)

    def start(self, run: Callable[[], None], *, name: str) -> threading.Thread:
        """Start a thread that does not keep the process from ending."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def queue(self, kind: type[T]) -> SimpleQueue[T]:
        del kind
        return SimpleQueue()
