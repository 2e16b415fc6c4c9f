"""The calls of CUDA (and HIP) that we make, behind one seam; the real ones are torch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self, cast

import torch

RELAXED = 2
"""``cudaStreamCaptureModeRelaxed``: no call of a thread in this mode breaks a capture."""

_NO_MODE = -1


class CudaEvent(Protocol):
    """A point of a stream; `query` and `elapsed_time` keep the interpreter's lock, the others release it."""

    def record(self) -> None:
        """Put it into the current stream of the calling thread."""

    def query(self) -> bool:
        """Whether the device has reached it."""

    def synchronize(self) -> None:
        """Wait for the device to reach it: asleep where the event was made ``blocking``, else spinning."""

    def elapsed_time(self, end: Self, /) -> float:
        """Return what lies between two events that were reached, in ms: float32, to about 0.5 us."""


class GraphType(Protocol):
    """The class of CUDA graphs: `Captures` stands around these two methods of it."""

    capture_begin: object
    capture_end: object


class Cuda(Protocol):
    """What we call; all but `capturing` may break a capture in some mode of some thread.

    ``hip``: AMD's flavour, where no mode protects a capture.
    """

    @property
    def hip(self) -> bool:
        """Whether this is HIP."""

    @property
    def graph_type(self) -> GraphType | None:
        """The class whose instances capture."""

    def event(self, *, timing: bool = False, blocking: bool = False) -> CudaEvent:
        """Make an event."""

    def current_device(self) -> int:
        """Return the calling thread's device: 0 in a thread that set none."""

    def set_device(self, index: int) -> None:
        """Choose the calling thread's device."""

    def capturing(self) -> bool:
        """Whether the calling thread's current stream is being captured."""

    def exchange_capture_mode(self, mode: int) -> int:
        """Set the calling thread's capture mode; return the one before."""


class TorchCuda:
    """The real one."""

    def __init__(self) -> None:
        self.hip = torch.version.hip is not None
        self.graph_type = cast("GraphType | None", getattr(torch.cuda, "CUDAGraph", None))
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
def relaxed(cuda: Cuda) -> Iterator[None]:
    """Make calls that break nobody's capture on this thread."""
    before = cuda.exchange_capture_mode(RELAXED)
    try:
        yield
    finally:
        cuda.exchange_capture_mode(before)


def enter_thread(cuda: Cuda, device: int) -> None:
    """Begin a thread of ours: its device first, since another call would make a context on GPU 0."""
    cuda.set_device(device)
    cuda.exchange_capture_mode(RELAXED)
