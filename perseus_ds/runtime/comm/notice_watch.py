"""Look for what is announced from outside, beside the training thread: a file system may be slow, or hang."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from perseus_ds.runtime.coupled_sets import Sets
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.straggler.notices import Notices

_PAUSE_S = 0.5
"""Between two looks. Each takes the interpreter from a training thread for some tenths of a millisecond."""


class NoticeWatch:
    """A thread of rank 0 that looks twice per second, however short an iteration is.

    ``announced`` is what held when it looked last: slowdowns, 1 where nothing is announced. A set
    of pipelines that meet in every layer is as slow as its slowest. ``power_w`` is what the job may take.

    Shape: ``announced`` [replicas], the same as ``sets``.
    """

    def __init__(self, notices: Notices, log: EventLog, *, sets: Sets) -> None:
        self._notices = notices
        self._log = log
        self._closing = threading.Event()
        self._complaints: list[str] = []
        self._sets = sets
        self.announced: NDArray[np.float64] = np.ones(len(sets))
        self.power_w: float | None = None
        self._thread = threading.Thread(target=self._watch, name="perseus-notices", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def report(self) -> None:
        """Report what is wrong with a notice, once; on the training thread, which owns the log."""
        while self._complaints:
            self._log.event("notice_ignored", self._complaints.pop(0))

    def close(self) -> None:
        """Stop looking; a file system that hangs is not waited for."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_PAUSE_S)

    def clear(self) -> None:
        """Remove all notices: they belong to a job that is over."""
        self._notices.clear()

    def _watch(self) -> None:
        while not self._closing.is_set():
            observed = self._notices.poll()
            self.announced = np.array([observed.slowdown[list(one)].max() for one in self._sets])
            self.power_w = observed.power_w
            self._complaints += observed.complaints
            self._closing.wait(_PAUSE_S)
