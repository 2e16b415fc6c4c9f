"""Marks on CUDA, where the host runs ahead: events of the stream, read when the device has passed them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from perseus_ds.device import Gpu
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.measure.captures import Captures
from perseus_ds.runtime.measure.cuda import Cuda, CudaEvent, TorchCuda, enter_thread, relaxed
from perseus_ds.runtime.measure.stopwatch import HostStopwatch, Mark, Stopwatch
from perseus_ds.runtime.measure.threads import HostThreads, Threads
from perseus_ds.runtime.measure.time_ties import TimeTies

_TOGETHER = 32
_POLL_S = 1e-3
_PATIENCE_S = 2.0


class _Mark:
    """A point of the stream; ``after_s`` are its seconds after its anchor once they were read.

    ``event`` is None where the mark was lost, or read.
    """

    __slots__ = ("after_s", "anchor", "event")

    def __init__(self, event: CudaEvent | None, anchor: _Anchor) -> None:
        self.event = event
        self.anchor = anchor
        self.after_s = math.nan

    @property
    def waits(self) -> bool:
        """Whether it has still to be read."""
        return self.event is not None and math.isnan(self.after_s)


class _Anchor(_Mark):
    """A landmark: later marks are counted from here, and the host's time is tied to it.

    ``device_s`` counts from the first anchor on, None until it was read; ``before`` is the anchor that it is
    read against. At an iteration's end ``reached`` is an event to sleep on, and ``seen_s`` when a thread that
    did so woke.
    """

    __slots__ = ("before", "captures", "device_s", "era", "issued_s", "reached", "seen_s")

    def __init__(self, event: CudaEvent | None, before: _Anchor | None, captures: int) -> None:
        super().__init__(event, self)
        self.before = before
        self.captures = captures
        self.device_s: float | None = None
        self.era: int | None = None
        self.issued_s = 0.0
        self.seen_s: float | None = None
        self.reached: CudaEvent | None = None


class _Moment:
    """A mark with an event to sleep on."""

    __slots__ = ("_mark", "_reached", "_stopwatch")

    def __init__(self, stopwatch: CudaStopwatch, mark: _Mark, reached: CudaEvent | None) -> None:
        self._stopwatch, self._mark, self._reached = stopwatch, mark, reached

    def wait(self) -> float:
        """Sleep until the device is here; return when that was."""
        if self._reached is None:
            return math.inf
        try:
            self._stopwatch.sleep_until(self._reached)
            at_s = self._stopwatch.time_of(self._mark)
        except RuntimeError:  # whatever CUDA says: this point is lost
            return math.inf
        self._stopwatch.give_back(self._reached)
        self._reached = None
        return math.inf if math.isnan(at_s) else at_s


class CudaStopwatch(Stopwatch):
    """An event per mark, out of a pool; never a wait on the training thread but for an iteration's end.

    An event tells its distance from another in float32: marks are counted from the last landmark, never from
    the job's first. A thread sleeps until the device has reached each landmark and so ties the device's
    time to the host's (`TimeTies`). Marks that the device has passed are read while others are taken, so that
    few events are alive. None of our calls is made while a graph is captured: a mark there is lost, and its
    iteration counts for nothing.
    """

    behind = 1

    def __init__(self, gpu: Gpu, *, cuda: Cuda | None = None, threads: Threads | None = None) -> None:
        self._cuda: Cuda = cuda or TorchCuda()
        self._threads: Threads = threads or HostThreads()
        self._now_s = gpu.now_s
        self._device = self._cuda.current_device()
        self._captures = Captures(self._cuda, self._threads)
        self._guarded: AbstractContextManager[object] = (
            self._captures.lock if self._cuda.hip else nullcontext()
        )
        self._timed: list[CudaEvent] = []
        self._sleepers: list[CudaEvent] = []
        self._unread: deque[_Mark] = deque()
        self._marked = 0
        self._ties = TimeTies()
        self._to_tie = self._threads.queue(object)
        self._retiring: deque[_Anchor] = deque()
        self._lost = ""
        self._lost_said = False
        self._anchor = _Anchor(None, None, 0)
        self._anchor.device_s, self._anchor.era = 0.0, -1
        self._last: _Mark = self._anchor
        self._closed = False
        self._thread = self._threads.start(self._tie, name="perseus-anchors")
        self.end()

    def mark(self) -> Mark:
        """Record an event in the current stream."""
        mark = _Mark(None, self._anchor)
        self._record(mark)
        self._marked += 1
        if self._marked >= _TOGETHER:
            self._marked = 0
            self._read_passed()
        return mark

    def begin(self) -> Mark:
        """Record an event to count from."""
        anchor = _Anchor(None, self._anchor, self._captures.begun)
        anchor.issued_s = self._now_s()
        if self._record(anchor):
            self._anchor = anchor
        return anchor

    def end(self) -> Mark:
        """Record an event to count from, and one to sleep on."""
        anchor = cast("_Anchor", self.begin())
        anchor.reached = None if anchor.event is None else self._recorded(self._sleepers, blocking=True)
        if anchor.reached is not None:
            self._to_tie.put(anchor)
        return anchor

    def moment(self) -> _Moment:
        """Record an event to sleep on, beside the last mark, which tells when that was."""
        mark = self._last
        lost = mark.event is None and math.isnan(mark.after_s)
        return _Moment(self, mark, None if lost else self._recorded(self._sleepers, blocking=True))

    def passed(self, mark: Mark) -> bool:
        """Ask the event, unless a graph is being captured."""
        anchor = cast("_Anchor", mark)
        if self._capturing():
            return False
        if not anchor.waits or anchor.seen_s is not None:
            return True
        with self._guarded, relaxed(self._cuda):
            return self._asked(cast("CudaEvent", anchor.event))

    def wait(self, mark: Mark) -> None:
        """Sleep on the landmark's own event, not on the device."""
        anchor = cast("_Anchor", mark)
        if anchor.reached is None or not anchor.waits or anchor.seen_s is not None or self._capturing():
            return
        try:
            with relaxed(self._cuda):
                self.sleep_until(anchor.reached)
        except RuntimeError as error:
            self._lose(error)

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Count from each mark's anchor, and from there to the host's time."""
        wanted = cast("Sequence[_Mark]", marks)
        left = [mark for mark in wanted if mark.waits]
        if left and not self._capturing():
            with self._guarded, relaxed(self._cuda):
                while left and self._unread:
                    self._read(self._unread.popleft())
                    if not left[-1].waits:
                        left = [mark for mark in left if mark.waits]
        return [self._host_s(mark) for mark in wanted]

    def whole(self, first: Mark, last: Mark) -> bool:
        """Whether neither was lost, the device's clock did not step between, and no graph was captured."""
        begin, end = cast("_Anchor", first), cast("_Anchor", last)
        known = begin.device_s is not None and end.device_s is not None
        return known and begin.era == end.era and begin.captures == end.captures

    @property
    def drift(self) -> float:
        """Host seconds that a second of the device's lasts, less one."""
        return self._ties.drift

    @property
    def captures(self) -> int:
        """How many graphs were captured so far."""
        return self._captures.begun

    def trouble(self) -> str:
        """Say once why marks are lost."""
        if not self._lost or self._lost_said:
            return ""
        self._lost_said = True
        return f"iterations are left out where a mark of ours was lost: {self._lost}"

    def close(self) -> None:
        """End the thread and leave CUDA's graphs alone."""
        if not self._closed:
            self._closed = True
            self._captures.remove()
            self._to_tie.put(None)
            self._thread.join(_PATIENCE_S)

    # -- taking marks

    def _capturing(self) -> bool:
        return self._captures.under_way > 0 or self._cuda.capturing()

    def _record(self, mark: _Mark) -> bool:
        """Record the mark's event, unless that would harm, or fails: the mark is lost then."""
        self._last = mark
        mark.event = self._recorded(self._timed, blocking=False)
        if mark.event is None:
            return False
        self._unread.append(mark)
        return True

    def _recorded(self, pool: list[CudaEvent], *, blocking: bool) -> CudaEvent | None:
        try:
            with self._guarded:
                if self._capturing():
                    return None
                event = pool.pop() if pool else self._made(blocking=blocking)
                event.record()
        except RuntimeError as error:
            self._lose(error)
            return None
        return event

    def _made(self, *, blocking: bool) -> CudaEvent:
        with relaxed(self._cuda):
            return self._cuda.event(timing=not blocking, blocking=blocking)

    def _lose(self, error: Exception) -> None:
        self._lost = self._lost or str(error).splitlines()[0]

    # -- reading them

    def _read_passed(self) -> None:
        """Read marks that the device has passed, many at a time."""
        unread = self._unread
        while len(unread) > 2 * _TOGETHER and not self._capturing():
            with self._guarded, relaxed(self._cuda):
                event = unread[_TOGETHER - 1].event
                if event is not None and not self._asked(event):
                    return
                for _ in range(_TOGETHER):
                    self._read(unread.popleft())

    def _asked(self, event: CudaEvent) -> bool:
        """Whether the device has reached an event; one that cannot be asked holds up nobody."""
        try:
            return event.query()
        except RuntimeError as error:
            self._lose(error)
            return True

    def _read(self, mark: _Mark) -> None:
        """Note a mark's seconds after its anchor and give its event back; a mark that raises is lost."""
        event = mark.event
        if event is None:
            return
        try:
            if isinstance(mark, _Anchor):
                self._read_anchor(mark)
                return
            mark.after_s = self._elapsed_s(mark.anchor, event)
        except RuntimeError as error:
            self._lose(error)
            mark.event = None
            return
        mark.event = None
        self._timed.append(event)

    def _elapsed_s(self, anchor: _Anchor, event: CudaEvent) -> float:
        begin = anchor.event
        if begin is None:
            return math.nan
        try:
            return begin.elapsed_time(event) * 1e-3
        except RuntimeError as error:
            if "not ready" not in str(error):
                raise
        event.synchronize()  # of another stream than the landmark that was waited for
        return begin.elapsed_time(event) * 1e-3

    def _read_anchor(self, anchor: _Anchor) -> None:
        """Tie the device's time to the host's; the anchor before it is needed no more."""
        before, anchor.before = anchor.before, None
        assert anchor.event is not None
        assert before is not None
        anchor.after_s = 0.0
        since_s = 0.0
        if before.event is None:
            self._ties.forget()
        else:
            try:
                since_s = before.event.elapsed_time(anchor.event) * 1e-3
            except RuntimeError:  # the device was reset: this one may be whole
                self._ties.forget()
            else:
                self._timed.append(before.event)
        before_s = before.device_s or 0.0
        before.event = None
        anchor.device_s = before_s + since_s
        if anchor.reached is not None:
            seen_s = self._now_s() if anchor.seen_s is None else anchor.seen_s
            self._ties.add(anchor.device_s, issued_s=anchor.issued_s, seen_s=seen_s)
        anchor.era = self._ties.era
        if before.reached is not None:
            self._retiring.append(before)
        while self._retiring and self._retiring[0].seen_s is not None:
            sleeper = self._retiring.popleft().reached
            if sleeper is not None:
                self._sleepers.append(sleeper)

    def _host_s(self, mark: _Mark) -> float:
        device_s = mark.anchor.device_s
        return math.nan if device_s is None else self._ties.host_s(device_s + mark.after_s)

    # -- on threads of ours

    def sleep_until(self, event: CudaEvent) -> None:
        """Sleep until the device has reached an event; on HIP by looks that no capture falls into."""
        if not self._cuda.hip:
            event.synchronize()
            return
        while True:
            with self._captures.lock:
                if not self._captures.under_way and event.query():
                    return
            self._threads.sleep(_POLL_S)

    def time_of(self, mark: _Mark) -> float:
        """When the device reached a mark that it has reached, on any thread; not a number if it was lost."""
        anchor = mark.anchor
        after_s = self._after_s(mark, anchor)
        if not self._ties.empty:
            at_s = self._ties.host_s(self._device_s(anchor) + after_s)
        else:  # no tie was read yet
            at_s = math.nan if anchor.seen_s is None else anchor.seen_s + after_s
        return min(max(at_s, anchor.issued_s), self._now_s())  # whatever the device's clock did meanwhile

    def give_back(self, event: CudaEvent) -> None:
        """Take an event back that was slept on."""
        self._sleepers.append(event)

    def enter_thread(self) -> None:
        """Choose this job's device, and have no call of this thread break a capture."""
        enter_thread(self._cuda, self._device)

    def _device_s(self, anchor: _Anchor) -> float:
        before, known_s = anchor.before, anchor.device_s
        if known_s is None and before is not None:
            known_s = self._device_s(before) + self._after_s(anchor, before)
        return anchor.device_s if anchor.device_s is not None else cast("float", known_s)

    def _after_s(self, mark: _Mark, anchor: _Anchor) -> float:
        """Read a mark while the training thread may be reading it too: what that has read is what counts."""
        if mark is anchor:
            return 0.0
        begin, event = anchor.event, mark.event
        after_s = math.nan
        if begin is not None and event is not None:
            with self._guarded:
                after_s = begin.elapsed_time(event) * 1e-3
        return after_s if math.isnan(mark.after_s) else mark.after_s

    def _tie(self) -> None:
        """Sleep until each landmark is reached, and note when that was."""
        self.enter_thread()
        while (anchor := cast("_Anchor | None", self._to_tie.get())) is not None:
            if anchor.reached is None:
                continue
            try:
                self.sleep_until(anchor.reached)
            except RuntimeError as error:
                self._lose(error)
            anchor.seen_s = self._now_s()


def stopwatch_for(gpu: Gpu, *, device_type: str) -> Stopwatch:
    """Choose by where the engine's tensors live.

    Raises:
        UnsupportedEngineError: on a device that runs behind the host in a way that we do not know.
    """
    if device_type == "cpu":
        return HostStopwatch(gpu)
    if device_type == "cuda":
        return CudaStopwatch(gpu)
    raise UnsupportedEngineError(
        f"the model's tensors live on {device_type!r}, a device whose instructions cannot be timed",
        hint="served are cuda (NVIDIA, and AMD through ROCm) and cpu",
    )
