"""Points of a stream, and their times: read where the device has passed them, tied to the host's clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from perseus_ds.runtime.measure.cuda.events import Events, PooledEvent
from perseus_ds.runtime.measure.cuda.time_ties import TimeTies

TOGETHER = 32
"""How many marks are read at a time."""
_FIRST = 3


class StreamMark:
    """A point of the stream; ``after_s`` are its seconds after its landmark once they were read.

    ``event`` is None where the mark was lost, or read.
    """

    __slots__ = ("after_s", "event", "landmark")

    def __init__(self, event: PooledEvent | None, landmark: Landmark) -> None:
        self.event = event
        self.landmark = landmark
        self.after_s = math.nan

    @property
    def waits(self) -> bool:
        """Whether it has still to be read."""
        return self.event is not None and math.isnan(self.after_s)


class Landmark(StreamMark):
    """A mark that later ones are counted from, and the host's time is tied to.

    ``device_s`` counts from the first landmark on, None until it was read; ``before`` is the one that it is
    read against. ``seen_s`` is when a thread woke that slept until an iteration's end.
    """

    __slots__ = ("before", "captures", "device_s", "era", "issued_s", "seen_s", "ties")

    def __init__(
        self, event: PooledEvent | None, before: Landmark | None, captures: int, issued_s: float
    ) -> None:
        super().__init__(event, self)
        self.before = before
        self.captures = captures
        self.device_s: float | None = None
        self.era: int | None = None
        self.issued_s = issued_s
        self.seen_s: float | None = None
        self.ties = False


class MarkReader:
    """Reads marks in the order of the stream, and gives their events back.

    An event reports its distance from another in float32: marks are counted from the last landmark, never
    from the job's first.
    """

    def __init__(self, events: Events, now_s: Callable[[], float]) -> None:
        self._events = events
        self._now_s = now_s
        self._unread: deque[StreamMark] = deque()
        self.ties = TimeTies()

    def add(self, mark: StreamMark) -> None:
        """Have a mark read when it is passed; marks come in the order of the stream."""
        self._unread.append(mark)

    def read_passed(self) -> None:
        """Read marks that the device has passed, many at a time."""
        unread, events = self._unread, self._events
        while len(unread) > 2 * TOGETHER and not events.capturing:
            with events.calls():
                event = unread[TOGETHER - 1].event
                if event is not None and not events.reached(event):
                    return
                for _ in range(TOGETHER):
                    self._read(unread.popleft())

    def read_first(self) -> None:
        """Read the oldest marks, if they were passed: the device runs what comes after them."""
        for _ in range(_FIRST):
            if not self._unread or self._events.capturing:
                return
            with self._events.calls():
                event = self._unread[0].event
                if event is not None and not self._events.reached(event):
                    return
                self._read(self._unread.popleft())

    def read(self, wanted: Iterable[StreamMark]) -> None:
        """Read marks that were passed, and those before them."""
        left = [mark for mark in wanted if mark.waits]
        if not left or self._events.capturing:
            return
        with self._events.calls():
            while left and self._unread:
                self._read(self._unread.popleft())
                if not left[-1].waits:
                    left = [mark for mark in left if mark.waits]

    def host_s(self, mark: StreamMark) -> float:
        """When a mark was, by the host's clock; not a number where it was lost or not read."""
        device_s = mark.landmark.device_s
        return math.nan if device_s is None else self.ties.host_s(device_s + mark.after_s)

    def time_of(self, mark: StreamMark) -> float:
        """When the device reached a mark that it has reached, on any thread; not a number if it was lost."""
        landmark = mark.landmark
        after_s = self._after_s(mark, landmark)
        if not self.ties.empty:
            at_s = self.ties.host_s(self._device_s(landmark) + after_s)
        else:  # no tie was read yet
            at_s = math.nan if landmark.seen_s is None else landmark.seen_s + after_s
        return min(max(at_s, landmark.issued_s), self._now_s())  # whatever the device's clock did meanwhile

    def _read(self, mark: StreamMark) -> None:
        """Note a mark's seconds after its landmark and give its event back; one that raises is lost."""
        event = mark.event
        if event is None:
            return
        try:
            if mark is mark.landmark:
                self._read_landmark(mark.landmark)
                return
            mark.after_s = self._elapsed_s(mark.landmark, event)
        except RuntimeError as error:
            self._events.lose(error)
            mark.event = None
            return
        mark.event = None
        self._events.let_go(event)

    def _elapsed_s(self, landmark: Landmark, event: PooledEvent) -> float:
        begin = landmark.event
        if begin is None:
            return math.nan
        try:
            return begin.cuda.elapsed_time(event.cuda) * 1e-3
        except RuntimeError as error:
            if "not ready" not in str(error):
                raise
        event.cuda.synchronize()  # of another stream than the landmark that was waited for
        return begin.cuda.elapsed_time(event.cuda) * 1e-3

    def _read_landmark(self, landmark: Landmark) -> None:
        """Tie the device's time to the host's; the landmark before it is needed no more."""
        before, landmark.before = landmark.before, None
        assert landmark.event is not None
        assert before is not None
        since_s, begin = 0.0, before.event
        if begin is None:
            self.ties.forget()
        else:
            try:
                since_s = begin.cuda.elapsed_time(landmark.event.cuda) * 1e-3
            except RuntimeError:  # the device was reset: this one may be whole
                self.ties.forget()
            else:
                self._events.let_go(begin)
        before.event = None
        landmark.device_s = (before.device_s or 0.0) + since_s
        landmark.after_s = 0.0
        if landmark.ties:
            seen_s = self._now_s() if landmark.seen_s is None else landmark.seen_s
            self.ties.add(landmark.device_s, issued_s=landmark.issued_s, seen_s=seen_s)
        landmark.era = self.ties.era

    def _device_s(self, landmark: Landmark) -> float:
        before, known_s = landmark.before, landmark.device_s
        if known_s is None and before is not None:
            known_s = self._device_s(before) + self._after_s(landmark, before)
        return landmark.device_s if landmark.device_s is not None else cast("float", known_s)

    def _after_s(self, mark: StreamMark, landmark: Landmark) -> float:
        """Read a mark while the training thread may be reading it too: what that has read is what counts."""
        if mark is landmark:
            return 0.0
        begin, event = landmark.event, mark.event
        after_s = math.nan
        if begin is not None and event is not None:
            try:
                after_s = self._events.elapsed_s(begin, event)
            except RuntimeError:
                if math.isnan(mark.after_s):
                    raise
        return after_s if math.isnan(mark.after_s) else mark.after_s
