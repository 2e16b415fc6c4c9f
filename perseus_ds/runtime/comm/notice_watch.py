"""Look for what is announced from outside, beside the training thread: a file system may be slow, or hang."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from perseus_ds.runtime.observe.event_log import Voice
from perseus_ds.straggler import Notices

_PAUSE_S = 0.25


class NoticeWatch:
    """A thread of rank 0 that looks when an iteration begins and a few times per second in between.

    ``told`` is what held when it looked last: slowdowns, 1 where nothing is announced.

    Shape: [replicas].
    """

    def __init__(self, notices: Notices, voice: Voice, *, replicas: int) -> None:
        self._notices = notices
        self._voice = voice
        self._wake = threading.Event()
        self._closing = False
        self._complaints: list[str] = []
        self.told: NDArray[np.float64] = np.ones(replicas)
        self._thread = threading.Thread(target=self._watch, name="perseus-notices", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def look(self) -> None:
        """Have it look now, without waiting for what it sees.

        Cost: a microsecond.
        """
        self._wake.set()

    def say(self) -> None:
        """Say what is wrong with a notice, once; on the training thread, which owns the voice."""
        while self._complaints:
            self._voice.event("notice_ignored", self._complaints.pop(0))

    def close(self) -> None:
        """Stop looking; a file system that hangs is not waited for."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_PAUSE_S)

    def clear(self) -> None:
        """Remove all notices: they speak of a job that is over."""
        self._notices.clear()

    def _watch(self) -> None:
        while not self._closing:
            heard = self._notices.poll()
            self.told = heard.told
            self._complaints += heard.complaints
            self._wake.wait(_PAUSE_S)
            self._wake.clear()
