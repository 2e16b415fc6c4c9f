"""Open the GPU that a job asks for: an ordered list of backends, each with a reason if it cannot serve."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from perseus_ds.device import amd, nvml
from perseus_ds.device.gpu import Achieved, Capabilities, DeviceRequest, EventReason, Gpu, Identity
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError, DeviceError, DevicePermissionError, DeviceUnsupportedError
from perseus_ds.guard import containment
from perseus_ds.guard.client import DEFAULT_SOCKET, GuardedGpu, ReadThroughGpu, connect
from perseus_ds.guard.protocol import ask, encode
from perseus_ds.guard.spawn import open_guarded

_NO_CLOCK = "the null device has no clock"
_ON_CPU = "the tensors of this process are on the CPU, not on a GPU"


class NullGpu(Gpu):
    """A real backend for machines without a GPU that we know: it shows nothing and sets nothing."""

    def __init__(self, index: int = 0) -> None:
        self._index = index

    def identify(self) -> Identity:
        return Identity("null", f"null-{self._index}", "", "none", self._index)

    def capabilities(self) -> Capabilities:
        return Capabilities((), (), False, _NO_CLOCK, counter_period_s=None, switch_latency_s=0.0)

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        raise DeviceUnsupportedError(f"cannot lock {clock_mhz} MHz: {_NO_CLOCK}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked."""

    def achieved(self) -> Achieved:
        return Achieved(0, EventReason.NONE)

    def energy_j(self) -> float:
        """Refuse: a made-up figure would end in a report."""
        raise DeviceUnsupportedError("the null device has no energy counter")

    def close(self) -> None:
        """Do nothing."""


class ReadOnlyGpu(ReadThroughGpu):
    """A GPU whose clock is not set from here."""

    def __init__(self, reader: Gpu, why_not: str) -> None:
        super().__init__(reader, replace(reader.capabilities(), can_lock=False, why_not=why_not))

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        raise DevicePermissionError(f"{clock_mhz} MHz is not set: {self.capabilities().why_not}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked through this."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to reach a GPU; only an ``automatic`` one is taken by itself.

    `check` raises why it cannot serve a request, and takes nothing.
    """

    name: str
    summary: str
    check: Callable[[DeviceRequest], object]
    open_gpu: Callable[[DeviceRequest], Gpu]
    automatic: bool = True

    def try_open(self, request: DeviceRequest) -> Gpu | str:
        """Open the GPU, or return the reason why that is impossible."""
        try:
            self.check(request)
            return self.open_gpu(request)
        except DeviceError as error:
            return error.message


@dataclass(frozen=True, slots=True)
class Choice:
    """The device that was opened, and why it was this one."""

    gpu: Gpu
    backend: str
    reason: str


def backends() -> tuple[Backend, ...]:
    """List every backend, in the order in which they are asked."""
    return _BACKENDS


def choose(request: DeviceRequest) -> Choice:
    """Open the device that a request names, or the first one that works here.

    ``automatic`` opens a GPU only where torch has named it: another one may be somebody else's. It never
    raises a `DeviceError`; a backend that is named may, and a name that none has is a `ConfigError`.
    """
    if request.setting != "automatic":
        for backend in _BACKENDS:
            if backend.name == request.setting:
                return Choice(backend.open_gpu(request), backend.name, "as configured")
        names = ", ".join(("automatic", *(backend.name for backend in _BACKENDS)))
        raise ConfigError(f"device: got {request.setting!r}", hint=f"one of {names}")
    if request.uuid is None and request.pci_bus_id is None:
        return Choice(NullGpu(request.local_rank), "null", f"automatic: {_ON_CPU}")
    refused: list[str] = []
    for backend in _BACKENDS:
        if not backend.automatic:
            continue
        gpu = backend.try_open(request)
        if isinstance(gpu, str):
            refused.append(f"{backend.name}: {gpu}")
            continue
        why_not = gpu.capabilities().why_not if request.lock and not isinstance(gpu, NullGpu) else None
        only_read = "" if why_not is None else f", to read only: {why_not}"
        others = f" ({'; '.join(refused)})" if refused else ""
        return Choice(gpu, backend.name, f"automatic: {backend.summary}{only_read}{others}")
    raise AssertionError("the null backend always opens")


# The node's service (``perseus-ds guardd``): it sets clocks, this process reads.


def check_service(request: DeviceRequest) -> None:
    """See that the service is there and would hand this GPU over; an operator who runs it wants it used."""
    if not request.lock:
        raise DeviceUnsupportedError("no clocks will be set")
    with connect(socket_path()) as sock, nvml.NvmlGpu(request) as gpu:
        ask(sock, encode({"do": "may", "uuid": gpu.identify().uuid, "backend": "nvml"}))


def open_service(request: DeviceRequest) -> Gpu:
    """Take the GPU's lease from the service, or only read where no clocks will be set."""
    reader = nvml.NvmlGpu(request)
    if not request.lock:
        return reader
    connect_again = partial(connect, socket_path())
    try:
        sock = connect_again()
    except DeviceError:
        reader.close()
        raise
    return GuardedGpu(reader, sock, connect=connect_again)


def socket_path() -> Path:
    """Return where the service listens: ``PERSEUS_GUARDD_SOCKET``, or its default."""
    return Path(os.environ.get("PERSEUS_GUARDD_SOCKET", DEFAULT_SOCKET))


# The vendors' libraries, each behind a guard of our own where clocks will be set.


def _open_guarded(gpu: Gpu, request: DeviceRequest, backend: str) -> Gpu:
    """Put a guard before a clock that will be set, unless its guard could leave it locked."""
    if not request.lock or not gpu.capabilities().can_lock:
        return gpu
    why_not = None if request.allow_unguarded_container else containment.why_unguarded()
    if why_not is not None:
        return ReadOnlyGpu(gpu, f"{why_not}: {containment.REMEDY}")
    return open_guarded(gpu, backend, request.restore_clock_mhz)


_BACKENDS = (
    Backend("guardd", "the node's clock service", check_service, open_service),
    Backend(
        "nvml",
        "NVIDIA's own library",
        lambda wish: nvml.NvmlGpu(wish).close(),
        lambda wish: _open_guarded(nvml.NvmlGpu(wish), wish, "nvml"),
    ),
    Backend(
        "amdsmi",
        "AMD's own library",
        lambda wish: amd.AmdGpu(wish).close(),
        lambda wish: _open_guarded(amd.AmdGpu(wish), wish, "amdsmi"),
        automatic=False,  # nobody has checked it on a real GPU yet
    ),
    Backend(
        "simulated",
        "a GPU in software",
        lambda _: None,
        lambda wish: SimulatedGpu(wish.simulated or SimulatedSettings(), wish.local_rank),
        automatic=False,
    ),
    Backend("null", "no GPU that we know is here", lambda _: None, lambda wish: NullGpu(wish.local_rank)),
)
