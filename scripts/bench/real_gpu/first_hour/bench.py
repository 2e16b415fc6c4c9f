"""The machine under the checks: a GPU to load and to read, a host to keep busy."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Callable
from typing import Protocol

import torch

from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.runtime.cuda_events import TorchCuda
from perseus_ds.runtime.threads import HostThreads

_SIDE = 8192
_PICKLED = 200_000


class Bench(Protocol):
    """What a check needs. The device is the calling thread's; every method may raise a ``RuntimeError``."""

    cuda: TorchCuda
    gpu: Gpu
    threads: HostThreads

    def launch(self, share: float) -> None:
        """Queue some 10 ms of work that takes about this share of the highest power; 0: nothing."""

    def synchronize(self) -> None:
        """Wait for the whole device."""

    def allocate(self) -> None:
        """Get memory from the driver, and give it back."""

    def capture(self, meanwhile: Callable[[], None]) -> None:
        """Capture a graph while something else is called, and replay it; raises where it was broken."""

    def run_python(self, for_s: float) -> None:
        """Compute in the interpreter."""

    def keep_lock(self) -> None:
        """Make one long call that keeps the interpreter's lock, as pickling does."""

    def thread_cpu_s(self) -> float:
        """CPU seconds of the calling thread so far."""

    def contexts(self) -> int:
        """On how many GPUs this process holds a context."""


class TorchBench:
    """The real one."""

    def __init__(self, gpu: Gpu) -> None:
        self.cuda = TorchCuda()
        self.gpu = gpu
        self.threads = HostThreads()
        self._factor = torch.rand(_SIDE, _SIDE, device="cuda", dtype=torch.bfloat16)
        self._product = torch.empty_like(self._factor)
        self._content = list(range(_PICKLED))
        self._each = {1.0: self._times(self._multiply), 0.5: self._times(self._copy)}

    def launch(self, share: float) -> None:
        """Multiply matrices, or copy one."""
        if share > 0:
            act = self._multiply if share >= 1.0 else self._copy
            for _ in range(self._each[1.0 if share >= 1.0 else 0.5]):
                act()

    def synchronize(self) -> None:
        """Wait for the current device."""
        torch.cuda.synchronize()

    def allocate(self) -> None:
        """Take 64 MiB past torch's cache."""
        memory = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        del memory
        torch.cuda.empty_cache()

    def capture(self, meanwhile: Callable[[], None]) -> None:
        """Capture one product, in the strictest mode."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="global"):
            self._multiply()
            meanwhile()
        graph.replay()
        torch.cuda.synchronize()

    def run_python(self, for_s: float) -> None:
        """Count."""
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            sum(range(1000))

    def keep_lock(self) -> None:
        """Pickle a list, some milliseconds."""
        pickle.dumps(self._content)

    def thread_cpu_s(self) -> float:
        """Ask the operating system."""
        return time.thread_time()

    def contexts(self) -> int:
        """Count devices on which torch finds one."""
        return sum(map(_has_context, range(torch.cuda.device_count())))

    def versions(self) -> dict[str, str]:
        """Name what ran."""
        runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return {"torch": torch.__version__, "runtime": runtime, "python": platform.python_version()}

    def _multiply(self) -> None:
        torch.mm(self._factor, self._factor, out=self._product)

    def _copy(self) -> None:
        self._product.copy_(self._factor)

    def _times(self, act: Callable[[], None]) -> int:
        """How often it fits into 10 ms."""
        act()
        torch.cuda.synchronize()
        begun_s = time.monotonic()
        for _ in range(10):
            act()
        torch.cuda.synchronize()
        return max(1, round(0.1 / (time.monotonic() - begun_s)))


def _has_context(index: int) -> bool:
    has = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001  # torch has no other way to ask
    return bool(has(index)) if has else index == torch.cuda.current_device()


def torch_bench() -> TorchBench:
    """Open the current CUDA device, to be read only.

    Raises:
        DeviceError: there is no GPU here, or NVML does not know it.
    """
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            "no CUDA device here to check", hint="run it on a machine with a GPU, in the Python that trains"
        )
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    return TorchBench(NvmlGpu(DeviceRequest("nvml", uuid=f"GPU-{uuid}", lock=False)))
