"""A CUDA (or HIP) that is as strict as the documentation: what a CPU never shows, in pure Python.

`FakeCuda` stands for `perseus_ds.runtime.cuda_events.TorchCuda` and for what a training program calls:
kernels, streams, graphs. Sources of each rule: CUDA runtime API (events, streams,
capture modes), PyTorch's ``torch/csrc/cuda/Event.cpp`` (what keeps the GIL), ``ProcessGroupNCCL.cpp`` (a
query behind a device-wide wait), PyTorch pull requests 104487, 148594, 176251 (captures broken by other
threads, HIP).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from virtual_host import NEVER_S, VirtualHost

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
FULL_MHZ, QUEUE = 1980, 1024
CONTEXT_BYTES = 534 << 20
RESOLUTION_MS = 0.5e-3

COSTS_S = {
    "event": 5e-6,
    "record": 1.0e-6,
    "query": 0.7e-6,
    "elapsed_time": 0.6e-6,
    "synchronize": 1.0e-6,
    "set_device": 0.3e-6,
    "current_device": 0.2e-6,
    "capturing": 0.3e-6,
    "exchange_capture_mode": 0.2e-6,
    "launch": 4e-6,
}
"""Host seconds that a call keeps the GIL for; creating an event is dearer while others do."""


class CudaError(RuntimeError):
    def __init__(self, what: str) -> None:
        super().__init__(f"CUDA error: {what}")


@dataclass(slots=True, eq=False)
class Op:
    """Entry of a stream's queue: ends when so much work is done; a record is none."""

    before: Op | None
    issued_s: float
    work_s: float = 0.0
    end_s: float = NEVER_S


@dataclass(eq=False)
class Stream:
    device: Device
    last: Op | None = None
    capture: Capture | None = None


@dataclass(eq=False)
class Capture:
    mode: int
    thread: str
    broken: str = ""
    work_s: float = 0.0


@dataclass
class Counts:
    """Counts of calls that the double saw."""

    events_alive: int = 0
    events_peak: int = 0
    events_made: int = 0
    broken: int = 0
    calls: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    spun_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    host_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    in_capture: list[str] = field(default_factory=list)


class Device:
    """One GPU: streams, a clock, a time of its own (``offset_s + (1 + ppm) * host``), a context or none."""

    def __init__(self, cuda: FakeCuda, *, ppm: float, offset_s: float) -> None:
        self._cuda = cuda
        self.rate = 1.0 + ppm * 1e-6
        self._offsets = [(-NEVER_S, offset_s)]
        self.clock_mhz = FULL_MHZ
        self.clocks: list[tuple[float, int]] = [(-NEVER_S, FULL_MHZ)]
        self.context_bytes = 0
        self.generation = 0
        self.out_of_memory = False
        self.pending: deque[Op] = deque()
        self.queued: deque[Op] = deque()
        self.default = Stream(self)
        self.synchronizing_until_s = -NEVER_S

    def time_s(self, host_s: float) -> float:
        """This device's own clock at a moment of the host."""
        offset_s = next(offset_s for since_s, offset_s in reversed(self._offsets) if since_s <= host_s)
        return offset_s + self.rate * host_s

    def shift(self, offset_s: float) -> None:
        self._offsets.append((self._cuda.host.now_s(), offset_s))

    def set_clock(self, clock_mhz: int) -> None:
        now_s = self._cuda.host.now_s()
        self.clock_mhz = clock_mhz
        self.clocks.append((now_s, clock_mhz))
        self._settle()
        for op in self.pending:
            if op.end_s > now_s:
                self._time(op)
        if len(self.clocks) > 64 and not self.pending:
            del self.clocks[:-1]

    def add(self, op: Op) -> Op:
        self._time(op)
        self._settle()
        self.pending.append(op)
        return op

    def _settle(self) -> None:
        """Let go of what has ended, and of what that came after."""
        while self.pending and self.pending[0].end_s <= self._cuda.host.now_s():
            self.pending.popleft().before = None

    def _time(self, op: Op) -> None:
        begun_s = max(op.issued_s, op.before.end_s if op.before else 0.0)
        op.end_s = begun_s + (self._working_s(begun_s, op.work_s) if op.work_s else 0.0)

    def _working_s(self, begun_s: float, work_s: float) -> float:
        """How long work that takes ``work_s`` at the full clock takes from a moment on."""
        if len(self.clocks) == 1:
            return work_s * FULL_MHZ / self.clock_mhz
        at_s, left_s = begun_s, work_s
        following = [*(since for since, _ in self.clocks[1:]), NEVER_S]
        for (_, clock_mhz), until_s in zip(self.clocks, following, strict=True):
            if until_s <= at_s:
                continue
            share = clock_mhz / FULL_MHZ
            if left_s <= (until_s - at_s) * share:
                return at_s + left_s / share - begun_s
            left_s -= (until_s - at_s) * share
            at_s = until_s
        raise AssertionError

    def suspend(self, for_s: float) -> None:
        """The host was suspended, or restored on another device: the device's clock alone goes on."""
        self.shift(self._offsets[-1][1] + for_s)

    def reset(self) -> None:
        """A reset: what was queued is gone, events of before are worth nothing, the clock starts again."""
        now_s = self._cuda.host.now_s()
        self.generation += 1
        self.pending.clear()
        self.queued.clear()
        self.default = Stream(self)
        self.shift(-self.rate * now_s)
        self.clock_mhz = FULL_MHZ
        self.clocks = [(-NEVER_S, FULL_MHZ)]


class FakeEvent:
    """An event of the double; made by `FakeCuda.event`."""

    def __init__(self, cuda: FakeCuda, device: Device, *, timing: bool, blocking: bool) -> None:
        self._cuda, self._device, self._generation = cuda, device, device.generation
        self.timing, self.blocking = timing, blocking
        self.op: Op | None = None
        self._stamp_s: float | None = None
        self._captured = False
        cuda.counts.events_made += 1
        cuda.counts.events_alive += 1
        cuda.counts.events_peak = max(cuda.counts.events_peak, cuda.counts.events_alive)

    def __del__(self) -> None:
        self._cuda.counts.events_alive -= 1

    def record(self) -> None:
        cuda = self._cuda
        cuda.called("record")
        self._check_generation()
        stream = cuda.current_stream()
        if stream.capture is not None:
            self._captured = True
            cuda.counts.in_capture.append("record")
            return
        cuda.unsafe("record", only_hip=True)
        self._captured, self._stamp_s = False, None
        cuda.wait_for_room(stream.device)
        self.op = stream.last = stream.device.add(Op(stream.last, cuda.host.now_s()))
        stream.device.queued.append(self.op)

    def query(self) -> bool:
        cuda = self._cuda
        cuda.called("query")
        cuda.unsafe("query")
        self._check_generation()
        self._check_captured()
        if self._device.synchronizing_until_s > cuda.host.now_s():  # with the GIL
            cuda.host.holding(lambda: self._device.synchronizing_until_s)
        return self._reached()

    def synchronize(self) -> None:
        cuda = self._cuda
        cuda.called("synchronize")
        cuda.unsafe("synchronize")
        self._check_generation()
        self._check_captured()
        began_s, generation = cuda.host.now_s(), self._device.generation
        if self.op is not None and not self._reached():
            cuda.host.native(lambda: self._until_s(generation))
        if not self.blocking:
            cuda.counts.spun_s[cuda.host.thread] += cuda.host.now_s() - began_s
        self._check_generation()

    def _until_s(self, generation: int) -> float:
        gone = self._device.generation != generation
        return 0.0 if gone or self.op is None else self.op.end_s

    def elapsed_time(self, end: FakeEvent) -> float:
        cuda = self._cuda
        cuda.called("elapsed_time")
        cuda.unsafe("elapsed_time")
        for event in (self, end):
            event._check_generation()
            event._check_captured()
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.op is None or end.op is None:
            raise CudaError("invalid resource handle")
        if not (self._reached() and end._reached()):
            raise CudaError("device not ready")
        steps = round((end.stamp_s - self.stamp_s) * 1e3 / RESOLUTION_MS)
        return float(np.float32(steps * RESOLUTION_MS))

    @property
    def stamp_s(self) -> float:
        """When the device reached it, by the device's own clock, as that showed it then."""
        return self._stamp_s

    def _reached(self) -> bool:
        if self.op is None:
            return True
        if self.op.end_s > self._cuda.host.now_s():
            return False
        if self._stamp_s is None:
            self._stamp_s = self._device.time_s(self.op.end_s)
        return True

    def _check_generation(self) -> None:
        if self._generation != self._device.generation:
            raise CudaError("context is destroyed")

    def _check_captured(self) -> None:
        if self._captured:
            raise CudaError("operation not permitted on an event last recorded in a capturing stream")


class FakeGraph:
    """As ``torch.cuda.CUDAGraph``; a subclass per `FakeCuda`, so that what stands around it stays there."""

    cuda: FakeCuda

    def __init__(self) -> None:
        self._stream: Stream | None = None
        self._work_s = 0.0

    def capture_begin(self, mode: int = GLOBAL) -> None:
        stream = self.cuda.current_stream()
        self._stream = stream
        stream.capture = Capture(mode, self.cuda.host.thread)
        self.cuda.captures.append(stream.capture)

    def capture_end(self) -> None:
        capture, self._stream.capture = self._stream.capture, None
        self.cuda.captures.remove(capture)
        self._work_s = capture.work_s
        if capture.broken:
            self.cuda.counts.broken += 1
            raise CudaError(f"operation failed due to a previous error during capture ({capture.broken})")

    def replay(self) -> None:
        """Launch all of it as one operation."""
        self.cuda.launch(self._work_s)


class FakeCuda:
    """A process's view of its devices, on a host in virtual time: no two threads run at once."""

    def __init__(
        self,
        host: VirtualHost,
        *,
        devices: int = 1,
        hip: bool = False,
        ppm: float = 0.0,
        offset_s: float = 0.0,
        costs_s: dict[str, float] | None = None,
    ) -> None:
        self.host, self.hip = host, hip
        self._costs_s = COSTS_S | (costs_s or {})
        self.devices = [Device(self, ppm=ppm, offset_s=offset_s) for _ in range(devices)]
        self.counts = Counts()
        self.captures: list[Capture] = []
        self.graph_type = type("FakeGraph", (FakeGraph,), {"cuda": self})
        self._threads: dict[str, _ThreadState] = defaultdict(_ThreadState)

    # -- the seam

    def event(self, *, timing: bool = False, blocking: bool = False) -> FakeEvent:
        self.called("event")
        self.unsafe("event")
        device = self._device()
        if device.out_of_memory:
            raise CudaError("out of memory")
        return FakeEvent(self, device, timing=timing, blocking=blocking)

    def current_device(self) -> int:
        self.called("current_device", context=False)
        return self._mine.device

    def set_device(self, index: int) -> None:
        self._mine.device = index
        self.called("set_device")

    def capturing(self) -> bool:
        self.called("capturing", context=False)
        return self.current_stream().capture is not None

    def exchange_capture_mode(self, mode: int) -> int:
        self.called("exchange_capture_mode")
        before, self._mine.mode = self._mine.mode, mode
        return before

    # -- what a training program calls

    def current_stream(self) -> Stream:
        stream = self._mine.stream
        return self._device().default if stream is None else stream

    def launch(self, work_s: float) -> None:
        """Queue a kernel on the current stream; a full queue blocks, with the GIL released."""
        self.called("launch")
        stream = self.current_stream()
        if stream.capture is not None:
            stream.capture.work_s += work_s
            return
        device = stream.device
        self.wait_for_room(device)
        stream.last = device.add(Op(stream.last, self.host.now_s(), work_s))
        device.queued.append(stream.last)

    def wait_for_room(self, device: Device) -> None:
        """Wait, without the GIL, for room in the launch queue; kernels and records stand in it."""
        queued, now_s = device.queued, self.host.now_s()
        while queued and queued[0].end_s <= now_s:
            queued.popleft()
        if len(queued) >= QUEUE:
            self.host.native(lambda: queued[0].end_s if queued else 0.0)

    @contextmanager
    def stream(self) -> Iterator[Stream]:
        mine = self._mine
        before, mine.stream = mine.stream, Stream(self._device())
        try:
            yield mine.stream
        finally:
            mine.stream = before

    @contextmanager
    def graph(self, mode: int = GLOBAL) -> Iterator[FakeGraph]:
        """Capture on a stream of its own, as ``torch.cuda.graph`` does: the device is waited for first."""
        self.synchronize()
        captured = self.graph_type()
        with self.stream():
            captured.capture_begin(mode)
            try:
                yield captured
            finally:
                captured.capture_end()

    def synchronize(self) -> None:
        """Wait for the whole device, holding its context lock."""
        self.called("synchronize")
        self.unsafe("device synchronize")
        device, began_s = self._device(), self.host.now_s()

        def idle_s() -> float:
            return max((op.end_s for op in device.pending), default=began_s)

        device.synchronizing_until_s = idle_s()
        self.host.native(idle_s)
        device.synchronizing_until_s = -NEVER_S

    # -- bookkeeping

    @property
    def _mine(self) -> _ThreadState:
        return self._threads[self.host.thread]

    def _device(self) -> Device:
        return self.devices[self._mine.device]

    def called(self, name: str, *, context: bool = True) -> None:
        """Count a call, let its time pass, and make the context that it needs."""
        thread = self.host.thread
        self.counts.calls[thread][name] += 1
        cost_s = self._costs_s[name]
        self.counts.host_s[thread] += cost_s
        self.host.spend(cost_s)
        device = self._device()
        if context and not device.context_bytes:
            device.context_bytes = CONTEXT_BYTES

    def unsafe(self, name: str, *, only_hip: bool = False) -> None:
        """Break what this call breaks: by this thread's mode and the captures', on HIP whatever they are."""
        if not self.captures:
            return
        thread, mode = self.host.thread, self._mine.mode
        self.counts.in_capture.append(name)
        for capture in self.captures:
            own = capture.thread == thread
            strict = capture.mode == GLOBAL if mode == GLOBAL and not own else own and capture.mode != RELAXED
            if self.hip or (not only_hip and mode != RELAXED and strict):
                capture.broken = capture.broken or f"{name} by {thread}"
                if not self.hip:
                    raise CudaError("operation not permitted when stream is capturing")


class _ThreadState:
    def __init__(self) -> None:
        self.device, self.mode = 0, GLOBAL
        self.stream: Stream | None = None
