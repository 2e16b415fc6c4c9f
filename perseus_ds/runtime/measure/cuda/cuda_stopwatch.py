"""Marks on CUDA, where the host runs ahead: events of the stream, read when the device has passed them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.measure.cuda.calls import Cuda, TorchCuda
from perseus_ds.runtime.measure.cuda.events import Events, PooledEvent
from perseus_ds.runtime.measure.cuda.marks import TOGETHER, Landmark, MarkReader, StreamMark
from perseus_ds.runtime.measure.stopwatch import HostStopwatch, Mark, Stopwatch
from perseus_ds.runtime.measure.threads import HostThreads, Threads

_PATIENCE_S = 2.0


class _CudaMoment:
    """A mark whose event a thread may sleep on; without one, it was passed and read, or lost."""

    __slots__ = ("_event", "_events", "_mark", "_reader")

    def __init__(
        self, events: Events, reader: MarkReader, mark: StreamMark, event: PooledEvent | None
    ) -> None:
        self._events, self._reader = events, reader
        self._mark, self._event = mark, event

    def wait(self) -> float:
        """Sleep until the device is here; return when that was."""
        event, self._event = self._event, None
        if event is None and math.isnan(self._mark.after_s):
            return math.inf
        try:
            if event is not None:
                self._events.sleep_until(event)
            at_s = self._reader.time_of(self._mark)
        except RuntimeError:  # whatever CUDA says: this point is lost
            return math.inf
        if event is not None:
            self._events.let_go(event)
        return math.inf if math.isnan(at_s) else at_s


class CudaStopwatch(Stopwatch):
    """An event per mark, out of a pool; never a wait on the training thread but for an iteration's end.

    A thread sleeps until the device has reached each landmark and so ties the device's time to the host's
    (`TimeTies`). Marks that the device has passed are read while others are taken. So two iterations' are
    alive at most, four events per instruction and five at their ends. None of our calls is made while a graph
    is
    captured: a mark there is lost, and its iteration counts for nothing.
    """

    behind = 1

    def __init__(self, gpu: Gpu, *, cuda: Cuda | None = None, threads: Threads | None = None) -> None:
        threads = threads or HostThreads()
        self._events = Events(cuda or TorchCuda(), threads)
        self._now_s = gpu.now_s
        self._reader = MarkReader(self._events, gpu.now_s)
        self._marked = 0
        self._to_tie = threads.queue(object)
        self._landmark = Landmark(None, None, 0, 0.0)
        self._landmark.device_s, self._landmark.era = 0.0, -1
        self._last: StreamMark = self._landmark
        self._closed = False
        self._thread = threads.start(self._tie, name="perseus-anchors")
        self.end()

    def mark(self) -> Mark:
        """Record an event in the current stream."""
        mark = self._last = StreamMark(self._events.recorded(), self._landmark)
        if mark.event is not None:
            self._reader.add(mark)
        self._marked += 1
        if self._marked >= TOGETHER:
            self._marked = 0
            self._reader.read_passed()
        return mark

    def begin(self) -> Mark:
        """Record an event to count from."""
        self._reader.read_first()
        return self._record_landmark()

    def end(self) -> Mark:
        """Record an event to count from, on which a thread sleeps."""
        landmark = self._record_landmark()
        if landmark.event is not None:
            landmark.ties = True
            landmark.event.hold()
            self._to_tie.put((landmark, landmark.event))
        return landmark

    def host_s(self) -> float:
        """Read the host's clock: the device has nothing of ours between an iteration's end and here."""
        return self._now_s()

    def moment(self) -> _CudaMoment:
        """Have the last mark's event be one to sleep on."""
        mark = self._last
        event = None if mark.event is None else self._events.sleepable(mark.event)
        if event is not None:
            mark.event = event
            event.hold()
        return _CudaMoment(self._events, self._reader, mark, event)

    def passed(self, mark: Mark) -> bool:
        """Ask the event, unless a graph is being captured."""
        landmark = cast("Landmark", mark)
        if self._events.capturing:
            return False
        if not landmark.waits or landmark.seen_s is not None:
            return True
        with self._events.calls():
            return self._events.reached(cast("PooledEvent", landmark.event))

    def wait(self, mark: Mark) -> None:
        """Sleep on the landmark's own event, not on the device."""
        landmark = cast("Landmark", mark)
        if landmark.event is None or not landmark.waits or landmark.seen_s is not None:
            return
        if self._events.capturing:
            return
        try:
            with self._events.relaxed():
                self._events.sleep_until(landmark.event)
        except RuntimeError as error:
            self._events.lose(error)

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Count from each mark's landmark, and from there to the host's time."""
        wanted = cast("Sequence[StreamMark]", marks)
        self._reader.read(wanted)
        return [self._reader.host_s(mark) for mark in wanted]

    def whole(self, first: Mark, last: Mark) -> bool:
        """Whether neither was lost, the device's clock did not step between, and no graph was captured."""
        begin, end = cast("Landmark", first), cast("Landmark", last)
        known = begin.device_s is not None and end.device_s is not None
        return known and begin.era == end.era and begin.captures == end.captures

    @property
    def drift(self) -> float:
        """Host seconds that a second of the device's lasts, less one."""
        return self._reader.ties.drift

    @property
    def captures(self) -> int:
        """How many graphs were captured so far."""
        return self._events.captures.begun

    def enter_thread(self) -> None:
        """Choose this job's device, and have no call of this thread break a capture."""
        self._events.enter_thread()

    def trouble(self) -> str:
        """Report once why marks are lost."""
        return self._events.trouble()

    def close(self) -> None:
        """End the thread and leave CUDA's graphs alone."""
        if not self._closed:
            self._closed = True
            self._events.captures.remove()
            self._to_tie.put(None)
            self._thread.join(_PATIENCE_S)

    def _record_landmark(self) -> Landmark:
        """Record one, unless that would harm, or fails: the mark is lost then."""
        issued_s = self._now_s()
        event = self._events.recorded(blocking=True)
        landmark = self._last = Landmark(event, self._landmark, self._events.captures.begun, issued_s)
        if event is not None:
            self._reader.add(landmark)
            self._landmark = landmark
        return landmark

    def _tie(self) -> None:
        """Sleep until each landmark is reached, and note when that was."""
        self._events.enter_thread()
        while (ending := cast("tuple[Landmark, PooledEvent] | None", self._to_tie.get())) is not None:
            landmark, event = ending
            try:
                self._events.sleep_until(event)
            except RuntimeError as error:
                self._events.lose(error)
            landmark.seen_s = self._now_s()
            self._events.let_go(event)


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
