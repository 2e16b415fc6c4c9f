"""Marks on CUDA, where the host runs ahead: events of the stream, read when the device has passed them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import EngineError
from perseus_ds.runtime.cuda_events import Events, PooledEvent, TorchCuda
from perseus_ds.runtime.recorder import Mark, Moment, Stopwatch
from perseus_ds.runtime.threads import HostThreads

# The device's clock against the host's: an offset that is followed, from points that both have seen.

_KEPT = 64
_APART_S = 1.0
_FAR_S = 10.0
_MOST_DRIFT = 500e-6
_JUMP_S = 5e-3
_LATE_IN_A_ROW = 8
_TRUSTED = 8  # of so many, some were seen as soon as they came


@dataclass(slots=True)
class _Tie:
    """A point of the device's time and the offset (host - device): between ``least_s`` and ``most_s``."""

    device_s: float
    least_s: float
    most_s: float


class ClockSync:
    """Device seconds to host seconds.

    A point of a stream comes after the host has issued it and before the host has seen it. How late it is
    seen varies from a few microseconds to whatever a busy host does; the least of many is the offset. Both
    clocks drift against each other by parts per million. The offset is a line, through the least of the older
    and of the newer half of about a minute.

    An offset that steps (the host was suspended, the device reset, a checkpoint restored) begins a new
    ``epoch``: nothing is known of what lies across.

    Source: the least delay of many, as in D. Mills, RFC 5905 (clock filter).
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._ties: deque[_Tie] = deque(maxlen=_KEPT)
        self._line = (0.0, 0.0, 0.0)
        self._late = self._added = 0

    @property
    def empty(self) -> bool:
        return not self._ties

    @property
    def drift(self) -> float:
        """Host seconds that a device second lasts, less one."""
        return self._line[2]

    def host_s(self, device_s: float) -> float:
        at_s, offset_s, drift = self._line
        return device_s + offset_s + drift * (device_s - at_s)

    def forget(self) -> None:
        """Begin a new epoch: the device's clock starts again."""
        self.epoch += 1
        self._late = self._added = 0
        self._ties.clear()

    def add(self, device_s: float, *, issued_s: float, seen_s: float) -> None:
        """Add one point: issued and seen by the host at these moments."""
        tie = _Tie(device_s, issued_s - device_s, seen_s - device_s)
        if self._ties and self._has_stepped(tie):
            self.forget()
        self._added += 1
        last = self._ties[-1] if self._ties else None
        if last is not None and device_s - last.device_s < _APART_S:
            last.least_s, last.most_s = max(last.least_s, tie.least_s), min(last.most_s, tie.most_s)
        else:
            self._ties.append(tie)
        self._fit(device_s)

    def _has_stepped(self, tie: _Tie) -> bool:
        """Return whether the offset cannot be what it was; one that is only seen late may be, for a while."""
        expected_s = self.host_s(tie.device_s) - tie.device_s
        trusted_s = expected_s if self._added >= _TRUSTED else self._ties[-1].least_s
        if tie.most_s < trusted_s - _JUMP_S or tie.least_s > expected_s + _JUMP_S:
            return True
        self._late = self._late + 1 if tie.most_s > expected_s + _JUMP_S else 0
        return self._late >= _LATE_IN_A_ROW

    def _fit(self, at_s: float) -> None:
        ties, drift = list(self._ties), self._line[2]

        def least(part: list[_Tie]) -> _Tie:
            return min(part, key=lambda tie: tie.most_s + drift * (at_s - tie.device_s))

        half = len(ties) // 2
        if half:
            old, new = least(ties[:half]), least(ties[half:])
            if new.device_s - old.device_s > _FAR_S:
                slope = (new.most_s - old.most_s) / (new.device_s - old.device_s)
                drift = max(-_MOST_DRIFT, min(_MOST_DRIFT, slope))
        best = least(ties)
        self._line = at_s, best.most_s + drift * (at_s - best.device_s), drift


# Points of a stream, and their times: read where the device has passed them, tied to the host's clock.

TOGETHER = 32
"""Marks that are read at a time."""
_FIRST = 3


class StreamMark:
    """A point of the stream; ``after_s`` are its seconds after its anchor once they were read.

    ``event`` is None where the mark was lost, or read.
    """

    __slots__ = ("after_s", "anchor", "event")

    def __init__(self, event: PooledEvent | None, anchor: AnchorEvent) -> None:
        self.event = event
        self.anchor = anchor
        self.after_s = math.nan

    @property
    def waits(self) -> bool:
        return self.event is not None and math.isnan(self.after_s)


class AnchorEvent(StreamMark):
    """A mark that later ones are counted from, and that ties the device's time to the host's.

    ``device_s`` counts from the first anchor on, None until it was read; ``before`` is the one that it is
    read against. ``seen_s`` is when a thread woke that slept until an iteration's end.
    """

    __slots__ = ("before", "captures", "device_s", "epoch", "issued_s", "seen_s", "ties")

    def __init__(
        self, event: PooledEvent | None, before: AnchorEvent | None, captures: int, issued_s: float
    ) -> None:
        super().__init__(event, self)
        self.before = before
        self.captures = captures
        self.device_s: float | None = None
        self.epoch: int | None = None
        self.issued_s = issued_s
        self.seen_s: float | None = None
        self.ties = False


class MarkReader:
    """Reads marks in the order of the stream, and gives their events back.

    An event reports its distance from another in float32: marks are counted from the last anchor, never
    from the job's first.
    """

    def __init__(self, events: Events, now_s: Callable[[], float]) -> None:
        self._events = events
        self._now_s = now_s
        self._unread: deque[StreamMark] = deque()
        self.ties = ClockSync()

    def add(self, mark: StreamMark) -> None:
        """Add a mark to read once it is passed; marks come in the order of the stream."""
        self._unread.append(mark)

    def read_passed(self) -> None:
        """Read marks that the device has passed, many at a time."""
        unread, events = self._unread, self._events
        while len(unread) > 2 * TOGETHER and not events.capturing:
            with events.calls():
                event = unread[TOGETHER - 1].event
                if event is not None and not events.has_reached(event):
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
                if event is not None and not self._events.has_reached(event):
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
        """Return when a mark was, by the host's clock; not a number where it was lost or not read."""
        device_s = mark.anchor.device_s
        return math.nan if device_s is None else self.ties.host_s(device_s + mark.after_s)

    def time_of(self, mark: StreamMark) -> float:
        """Return when the device reached a mark, on any thread; not a number if it was lost."""
        anchor = mark.anchor
        after_s = self._after_s(mark, anchor)
        if not self.ties.empty:
            at_s = self.ties.host_s(self._device_s(anchor) + after_s)
        else:  # no tie was read yet
            at_s = math.nan if anchor.seen_s is None else anchor.seen_s + after_s
        return min(max(at_s, anchor.issued_s), self._now_s())  # whatever the device's clock did meanwhile

    def _read(self, mark: StreamMark) -> None:
        """Note a mark's seconds after its anchor and give its event back; one that raises is lost."""
        event = mark.event
        if event is None:
            return
        try:
            if mark is mark.anchor:
                self._read_anchor(mark.anchor)
                return
            mark.after_s = self._elapsed_s(mark.anchor, event)
        except RuntimeError as error:
            self._events.lose(error)
            mark.event = None
            return
        mark.event = None
        self._events.let_go(event)

    def _elapsed_s(self, anchor: AnchorEvent, event: PooledEvent) -> float:
        begin = anchor.event
        if begin is None:
            return math.nan
        try:
            return begin.cuda.elapsed_time(event.cuda) * 1e-3
        except RuntimeError as error:
            if "not ready" not in str(error):
                raise
        event.cuda.synchronize()  # of another stream than the anchor that was waited for
        return begin.cuda.elapsed_time(event.cuda) * 1e-3

    def _read_anchor(self, anchor: AnchorEvent) -> None:
        """Tie the device's time to the host's; the anchor before it is needed no more."""
        before, anchor.before = anchor.before, None
        assert anchor.event is not None
        assert before is not None
        since_s, begin = 0.0, before.event
        if begin is None:
            self.ties.forget()
        else:
            try:
                since_s = begin.cuda.elapsed_time(anchor.event.cuda) * 1e-3
            except RuntimeError:  # the device was reset: this one may be whole
                self.ties.forget()
            else:
                self._events.let_go(begin)
        before.event = None
        anchor.device_s = (before.device_s or 0.0) + since_s
        anchor.after_s = 0.0
        if anchor.ties:
            seen_s = self._now_s() if anchor.seen_s is None else anchor.seen_s
            self.ties.add(anchor.device_s, issued_s=anchor.issued_s, seen_s=seen_s)
        anchor.epoch = self.ties.epoch

    def _device_s(self, anchor: AnchorEvent) -> float:
        before, known_s = anchor.before, anchor.device_s
        if known_s is None and before is not None:
            known_s = self._device_s(before) + self._after_s(anchor, before)
        return anchor.device_s if anchor.device_s is not None else cast("float", known_s)

    def _after_s(self, mark: StreamMark, anchor: AnchorEvent) -> float:
        """Read a mark while the training thread may be reading it too: what that has read is what counts."""
        if mark is anchor:
            return 0.0
        begin, event = anchor.event, mark.event
        after_s = math.nan
        if begin is not None and event is not None:
            try:
                after_s = self._events.elapsed_s(begin, event)
            except RuntimeError:
                if math.isnan(mark.after_s):
                    raise
        return after_s if math.isnan(mark.after_s) else mark.after_s


_PATIENCE_S = 2.0


class CudaStopwatch(Stopwatch):
    """An event per mark, out of a pool; never a wait on the training thread but for an iteration's end.

    A thread sleeps until the device has reached each anchor and so ties the device's time to the host's
    (`ClockSync`). Marks that the device has passed are read while others are taken. So two iterations' are
    alive at most, four events per instruction and five at their ends. None of our calls is made while a graph
    is captured: a mark there is lost, and its iteration counts for nothing.
    """

    behind = 1

    def __init__(
        self, gpu: Gpu, *, cuda: TorchCuda | None = None, threads: HostThreads | None = None
    ) -> None:
        super().__init__(gpu)
        threads = threads or HostThreads()
        self._events = Events(cuda or TorchCuda(), threads)
        self._reader = MarkReader(self._events, gpu.now_s)
        self._marked = 0
        self._to_tie = threads.queue(object)
        self._anchor = AnchorEvent(None, None, 0, 0.0)
        self._anchor.device_s, self._anchor.epoch = 0.0, -1
        self._last: StreamMark = self._anchor
        self._closed = False
        self._thread = threads.start(self._tie, name="perseus-anchors")
        self.end()

    def mark(self) -> Mark:
        mark = self._last = StreamMark(self._events.record(), self._anchor)
        if mark.event is not None:
            self._reader.add(mark)
        self._marked += 1
        if self._marked >= TOGETHER:
            self._marked = 0
            self._reader.read_passed()
        return mark

    def begin(self) -> Mark:
        self._reader.read_first()
        return self._record_anchor()

    def end(self) -> Mark:
        """Record an event to count from, on which a thread sleeps."""
        anchor = self._record_anchor()
        if anchor.event is not None:
            anchor.ties = True
            anchor.event.hold()
            self._to_tie.put((anchor, anchor.event))
        return anchor

    def moment(self) -> Moment:
        """Make the last mark's event one to sleep on."""
        mark = self._last
        event = None if mark.event is None else self._events.sleepable(mark.event)
        if event is not None:
            mark.event = event
            event.hold()
        return partial(self._wait_for, mark, event)

    def has_passed(self, mark: Mark) -> bool:
        """Ask the event, unless a graph is being captured."""
        anchor = cast("AnchorEvent", mark)
        if self._events.capturing:
            return False
        if not anchor.waits or anchor.seen_s is not None:
            return True
        with self._events.calls():
            return self._events.has_reached(cast("PooledEvent", anchor.event))

    def wait(self, mark: Mark) -> None:
        """Sleep on the anchor's own event, not on the device."""
        anchor = cast("AnchorEvent", mark)
        if anchor.event is None or not anchor.waits or anchor.seen_s is not None:
            return
        if self._events.capturing:
            return
        try:
            with self._events.relax_capture_mode():
                self._events.sleep_until(anchor.event)
        except RuntimeError as error:
            self._events.lose(error)

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Count from each mark's anchor, and from there to the host's time."""
        wanted = cast("Sequence[StreamMark]", marks)
        self._reader.read(wanted)
        return [self._reader.host_s(mark) for mark in wanted]

    def whole(self, first: Mark, last: Mark) -> bool:
        """Return whether neither was lost, the device's clock did not step, and no graph was captured."""
        begin, end = cast("AnchorEvent", first), cast("AnchorEvent", last)
        known = begin.device_s is not None and end.device_s is not None
        return known and begin.epoch == end.epoch and begin.captures == end.captures

    @property
    def drift(self) -> float:
        return self._reader.ties.drift

    @property
    def captures(self) -> int:
        return self._events.captures.begun

    def enter_thread(self) -> None:
        self._events.enter_thread()

    def trouble(self) -> str:
        return self._events.trouble()

    def close(self) -> None:
        """End the thread and leave CUDA's graphs alone."""
        if not self._closed:
            self._closed = True
            self._events.captures.remove()
            self._to_tie.put(None)
            self._thread.join(_PATIENCE_S)

    def _record_anchor(self) -> AnchorEvent:
        """Record one, unless that would harm, or fails: the mark is lost then."""
        issued_s = self._now_s()
        event = self._events.record(blocking=True)
        anchor = self._last = AnchorEvent(event, self._anchor, self._events.captures.begun, issued_s)
        if event is not None:
            self._reader.add(anchor)
            self._anchor = anchor
        return anchor

    def _wait_for(self, mark: StreamMark, event: PooledEvent | None) -> float:
        """Sleep on the event of a mark, and let it go; without one the mark was passed and read, or lost."""
        if event is None and math.isnan(mark.after_s):
            return math.inf
        try:
            if event is not None:
                self._events.sleep_until(event)
            at_s = self._reader.time_of(mark)
        except RuntimeError:  # whatever CUDA says: this point is lost
            return math.inf
        if event is not None:
            self._events.let_go(event)
        return math.inf if math.isnan(at_s) else at_s

    def _tie(self) -> None:
        """Sleep until each anchor is reached, and note when that was."""
        self._events.enter_thread()
        while (ending := cast("tuple[AnchorEvent, PooledEvent] | None", self._to_tie.get())) is not None:
            anchor, event = ending
            try:
                self._events.sleep_until(event)
            except RuntimeError as error:
                self._events.lose(error)
            anchor.seen_s = self._now_s()
            self._events.let_go(event)


def stopwatch_for(gpu: Gpu, *, device_type: str) -> Stopwatch:
    """Choose by where the engine's tensors live.

    Raises:
        EngineError: on a device that runs behind the host in a way that we do not know.
    """
    if device_type == "cpu":
        return Stopwatch(gpu)
    if device_type == "cuda":
        return CudaStopwatch(gpu)
    raise EngineError(
        f"the model's tensors live on {device_type!r}, a device whose instructions cannot be timed",
        hint="served are cuda (NVIDIA, and AMD through ROCm) and cpu",
    )
