"""A pool of CUDA events, recorded, queried and slept on so that no call of ours falls into a capture."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Protocol, Self, cast

import torch

from perseus_ds.runtime.threads import HostThreads

RELAXED = 2
"""``cudaStreamCaptureModeRelaxed``: no call of a thread in this mode breaks a capture."""

_NO_MODE = -1


class CudaEvent(Protocol):
    """A point of a stream; `query` and `elapsed_time` keep the interpreter's lock, the others release it.

    torch's own class has no annotations.
    """

    def record(self) -> None:
        """Put it into the current stream of the calling thread."""

    def query(self) -> bool:
        """Return whether the device has reached it."""

    def synchronize(self) -> None:
        """Wait for the device to reach it: asleep where the event was made ``blocking``, else spinning."""

    def elapsed_time(self, end: Self, /) -> float:
        """Return what lies between two events that were reached, in ms: float32, to about 0.5 us."""


class TorchCuda:
    """The calls of CUDA that we make, through torch; all but `capturing` may break a capture of some thread.

    ``hip``: AMD's flavour, where no mode protects a capture.
    """

    def __init__(self) -> None:
        self.hip = torch.version.hip is not None
        self.graph_type = getattr(torch.cuda, "CUDAGraph", None)
        self.current_device = torch.cuda.current_device
        self.set_device = torch.cuda.set_device
        self.capturing = torch.cuda.is_current_stream_capturing
        self._exchange = _exchange_of_runtime(hip=self.hip)

    def event(self, *, timing: bool = False, blocking: bool = False) -> CudaEvent:
        """Make one of torch's events: `torch.Event` would ignore ``blocking``."""
        return torch.cuda.Event(enable_timing=timing, blocking=blocking)  # type: ignore[no-untyped-call]

    def exchange_capture_mode(self, mode: int) -> int:
        """Call the runtime library; without one that knows this, nothing changes."""
        present = ctypes.c_int(mode)
        if mode == _NO_MODE or self._exchange is None or self._exchange(ctypes.byref(present)) != 0:
            return _NO_MODE
        return present.value


def _exchange_of_runtime(*, hip: bool) -> Callable[[object], int] | None:
    """Find the call in the library that torch has loaded; torch itself has no binding for it."""
    version = (torch.version.hip if hip else torch.version.cuda) or ""
    library, call = ("libamdhip64", "hip") if hip else ("libcudart", "cuda")
    for name in (f"{library}.so.{version.split('.', maxsplit=1)[0]}", f"{library}.so"):
        try:
            exchange = getattr(ctypes.CDLL(name), f"{call}ThreadExchangeStreamCaptureMode")
        except (OSError, AttributeError):
            continue
        return cast("Callable[[object], int]", exchange)
    return None


@contextmanager
def relax_capture_mode(cuda: TorchCuda) -> Iterator[None]:
    """Protect captures from the calls that this thread makes within."""
    before = cuda.exchange_capture_mode(RELAXED)
    try:
        yield
    finally:
        cuda.exchange_capture_mode(before)


# Captures of CUDA graphs, by whomever: when one is under way, so that nothing of ours comes into it.


class Captures:
    """Wraps ``CUDAGraph.capture_begin`` and ``capture_end``, through which all Python code captures.

    PyTorch's own ``torch.cuda.graph``, Inductor, ``make_graphed_callables``, Transformer Engine and Megatron
    all call these two. ``begun`` counts captures, ``under_way`` those that have not ended. A holder of
    ``lock`` keeps a capture from beginning. On HIP every call of ours is made so, since no mode of a thread
    protects a capture there.
    """

    def __init__(self, cuda: TorchCuda, threads: HostThreads) -> None:
        self.begun = 0
        self.under_way = 0
        self.lock = threads.lock()
        self._kind = cuda.graph_type
        self._originals: dict[str, Any] = {}
        if self._kind is not None:
            self._put("capture_begin", self._begins)
            self._put("capture_end", self._ends)

    def remove(self) -> None:
        """Restore the class, unless another wrapper is around ours; safe to call twice."""
        for name, original in self._originals.items():
            if getattr(vars(self._kind).get(name), "perseus_ds", None) is self:
                setattr(self._kind, name, original)
        self._originals = {}

    def _put(self, name: str, around: Callable[..., object]) -> None:
        original = getattr(self._kind, name)

        @wraps(original)
        def around_capture(*args: object, **kwargs: object) -> object:
            return around(original, *args, **kwargs)

        around_capture.perseus_ds = self  # type: ignore[attr-defined]  # how ours is recognised
        self._originals[name] = original
        setattr(self._kind, name, around_capture)

    def _begins(self, original: Callable[..., object], *args: object, **kwargs: object) -> object:
        with self.lock:
            self.begun += 1
            self.under_way += 1
        try:
            return original(*args, **kwargs)
        except BaseException:
            self.under_way -= 1
            raise

    def _ends(self, original: Callable[..., object], *args: object, **kwargs: object) -> object:
        try:
            return original(*args, **kwargs)
        finally:
            self.under_way = max(0, self.under_way - 1)


_POLL_S = 1e-3


class PooledEvent:
    """A timed event; ``blocking``: to sleep on. ``holders`` holds True for the last of them to let it go."""

    __slots__ = ("blocking", "cuda", "holders")

    def __init__(self, cuda: CudaEvent, *, blocking: bool) -> None:
        self.cuda = cuda
        self.blocking = blocking
        self.holders = [True]

    def hold(self) -> None:
        self.holders.append(False)


class Events:
    """A pool of events. An error of CUDA is kept for `trouble`, and its event is None.

    Cost: an event is made when none is free, and used again; the training thread never waits for one.
    """

    def __init__(self, cuda: TorchCuda, threads: HostThreads) -> None:
        self._cuda = cuda
        self._threads = threads
        self._hip, self._capturing = cuda.hip, cuda.capturing
        self._device = cuda.current_device()
        self.captures = Captures(cuda, threads)
        self._guarded: AbstractContextManager[object] = self.captures.lock if self._hip else nullcontext()
        self._plain: list[PooledEvent] = []
        self._sleepers: list[PooledEvent] = []
        self._lost = ""
        self._lost_said = False

    @property
    def capturing(self) -> bool:
        """True if a graph is being captured: nothing of ours is called meanwhile."""
        return self.captures.under_way > 0 or self._capturing()

    @contextmanager
    def calls(self) -> Iterator[None]:
        with self._guarded, relax_capture_mode(self._cuda):
            yield

    def relax_capture_mode(self) -> AbstractContextManager[None]:
        """Protect captures on CUDA; on HIP the calls within have to avoid them."""
        return relax_capture_mode(self._cuda)

    def record(self, *, blocking: bool = False) -> PooledEvent | None:
        """Put an event into the current stream, ``blocking`` to sleep on; None where it cannot be."""
        try:
            if not self._hip:
                return self._record(blocking=blocking)
            with self._guarded:
                return self._record(blocking=blocking)
        except RuntimeError as error:
            self.lose(error)
            return None

    def sleepable(self, event: PooledEvent) -> PooledEvent | None:
        """Have a thread able to sleep until here: record another in place of what was recorded last.

        There are not more events than before. None where none can be recorded.
        """
        if event.blocking:
            return event
        new = not self._sleepers
        other = self.record(blocking=True)
        if other is not None and not new:
            self.let_go(event)
        return other

    def let_go(self, event: PooledEvent) -> None:
        """Release an event, on any thread: the last holder returns it to the pool."""
        if len(event.holders) > 1:  # only a holder can add holders: a single one is the last
            if not event.holders.pop():
                return
            event.holders.append(True)
        (self._sleepers if event.blocking else self._plain).append(event)

    def has_reached(self, event: PooledEvent) -> bool:
        """Return whether the device has reached an event; True for one that cannot be queried."""
        try:
            return event.cuda.query()
        except RuntimeError as error:
            self.lose(error)
            return True

    def elapsed_s(self, begin: PooledEvent, end: PooledEvent) -> float:
        """Return what lies between two events, on any thread.

        Raises:
            RuntimeError: CUDA's own: one was not reached, or is lost.
        """
        with self._guarded:
            return begin.cuda.elapsed_time(end.cuda) * 1e-3

    def sleep_until(self, event: PooledEvent) -> None:
        """Sleep until the device has reached an event; on HIP by looks that no capture falls into.

        Raises:
            RuntimeError: CUDA's own: the event is lost.
        """
        if not self._hip:
            event.cuda.synchronize()
            return
        while True:
            with self.captures.lock:
                if not self.captures.under_way and event.cuda.query():
                    return
            self._threads.sleep(_POLL_S)

    def lose(self, error: Exception) -> None:
        """Note why an event was lost, the first time."""
        self._lost = self._lost or str(error).splitlines()[0]

    def trouble(self) -> str:
        """Report once why marks are lost."""
        if not self._lost or self._lost_said:
            return ""
        self._lost_said = True
        return f"iterations are left out where a mark of ours was lost: {self._lost}"

    def enter_thread(self) -> None:
        """Choose this job's device, and have no call of this thread break a capture.

        The device comes first: another call would make a context on GPU 0.
        """
        self._cuda.set_device(self._device)
        self._cuda.exchange_capture_mode(RELAXED)

    def _record(self, *, blocking: bool) -> PooledEvent | None:
        if self.captures.under_way or self._capturing():
            return None
        pool = (not blocking and self._plain) or self._sleepers
        event = pool.pop() if pool else self._make(blocking=blocking)
        event.cuda.record()
        return event

    def _make(self, *, blocking: bool) -> PooledEvent:
        with relax_capture_mode(self._cuda):
            return PooledEvent(self._cuda.event(timing=True, blocking=blocking), blocking=blocking)
