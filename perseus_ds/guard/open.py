"""Open the GPU that a job asks for: an ordered list of backends, each with a reason if it cannot serve."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from perseus_ds.device import amd as amdsmi
from perseus_ds.device import nvml
from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    DeviceRequest,
    EventReason,
    Gpu,
    Identity,
    ReadThroughGpu,
)
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError, DeviceError, DevicePermissionError, DeviceUnsupportedError
from perseus_ds.guard import containment
from perseus_ds.guard.client import DEFAULT_SOCKET, GuardClient, GuardedGpu, connect
from perseus_ds.guard.protocol import ask, encode
from perseus_ds.guard.spawn import guarded


@dataclass(frozen=True, slots=True)
class Choice:
    """The device that was opened, and why it was this one."""

    gpu: Gpu
    backend: str
    reason: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to reach a GPU.

    ``priority`` returns how good it would be for a request (``automatic`` takes the highest; below zero means
    never by itself). It raises `DeviceError` with the reason why it cannot work here.
    """

    name: str
    summary: str
    priority: Callable[[DeviceRequest], float]
    open_gpu: Callable[[DeviceRequest], Gpu]


# The node's service (``perseus-ds guardd``): it sets clocks, this process reads.

_PRIORITY_WITH_LOCK, _PRIORITY_READ_ONLY = 95.0, 10.0


def service_priority(request: DeviceRequest) -> float:
    """Return the best where clocks will be set: an operator who runs the service wants it used.

    Raises:
        DeviceError: no service, no right to this GPU, or no such GPU here.
    """
    with connect(socket_path()) as sock, NvmlGpu(request) as gpu:
        if request.lock:
            ask(sock, encode({"do": "may", "uuid": gpu.identify().uuid, "backend": "nvml"}))
    return _PRIORITY_WITH_LOCK if request.lock else _PRIORITY_READ_ONLY


def open_service(request: DeviceRequest) -> Gpu:
    """Take the GPU's lease from the service, or only read where no clocks will be set.

    Raises:
        DeviceError: refused (allow list, another owner), or the service is gone.
    """
    reader = NvmlGpu(request)
    if not request.lock:
        return reader
    client: GuardClient | None = None
    try:
        path = socket_path()
        client = GuardClient(connect(path), connect=partial(connect, path))
        return GuardedGpu(reader, client)
    except DeviceError:
        if client is not None:
            client.close()
        reader.close()
        raise


def socket_path() -> Path:
    """Return where the service listens: ``PERSEUS_GUARDD_SOCKET``, or its default."""
    return Path(os.environ.get("PERSEUS_GUARDD_SOCKET", DEFAULT_SOCKET))


_WHY_NOT = "the null device has no clock"


class NullGpu(Gpu):
    """A real backend for machines without a GPU that we know."""

    def __init__(self, index: int = 0) -> None:
        self._index = index

    def identify(self) -> Identity:
        """Name it as what it is."""
        return Identity("null", f"null-{self._index}", "", "none", self._index)

    def capabilities(self) -> Capabilities:
        """Nothing at all."""
        return Capabilities(
            (), (), can_lock=False, why_not=_WHY_NOT, counter_period_s=None, switch_latency_s=0.0
        )

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        """Refuse.

        Raises:
            DeviceUnsupportedError: always.
        """
        raise DeviceUnsupportedError(f"cannot lock {clock_mhz} MHz: {_WHY_NOT}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked."""

    def achieved(self) -> Achieved:
        """Report clocks of zero."""
        return Achieved(0, 0, EventReason.NONE)

    def energy_j(self) -> float:
        """Refuse: a made-up figure would end in a report.

        Raises:
            DeviceUnsupportedError: always.
        """
        raise DeviceUnsupportedError("the null device has no energy counter")

    def now_s(self) -> float:
        """Read the host's monotonic clock."""
        return time.monotonic()

    def close(self) -> None:
        """Do nothing."""


class ReadOnlyGpu(ReadThroughGpu):
    """Everything but the clock."""

    def __init__(self, reader: Gpu, why_not: str) -> None:
        super().__init__(reader, replace(reader.capabilities(), can_lock=False, why_not=why_not))
        self._why_not = why_not

    def lock_clock(self, clock_mhz: int) -> NoReturn:
        """Refuse.

        Raises:
            DevicePermissionError: always, with the reason.
        """
        raise DevicePermissionError(f"{clock_mhz} MHz is not set: {self._why_not}")

    def reset_clock(self) -> None:
        """Do nothing: nothing was ever locked through this."""


_ON_CPU = "the tensors of this process are on the CPU, not on a GPU"
_NEVER_BY_ITSELF = -1.0
_LAST_RESORT = 0.0


def backends() -> tuple[Backend, ...]:
    """List every backend, in the order in which they are asked."""
    return _BACKENDS


def choose(request: DeviceRequest) -> Choice:
    """Open the device that a request names, or the best one that works here.

    ``automatic`` opens a GPU only where torch has named it: another one may be somebody else's.

    Raises:
        ConfigError: no backend has that name.
        DeviceError: the named backend cannot work here; ``automatic`` never raises it for want of a device.
    """
    if request.setting == "automatic" and request.uuid is None and request.pci_bus_id is None:
        return Choice(_open_null(request), "null", f"automatic: {_ON_CPU}")
    if request.setting == "automatic":
        return _best(request)
    backend = _named(request.setting)
    backend.priority(request)
    return Choice(backend.open_gpu(request), backend.name, "as configured")


def _best(request: DeviceRequest) -> Choice:
    ranked: list[tuple[float, Backend]] = []
    refused: list[str] = []
    for backend in _BACKENDS:
        try:
            ranked.append((backend.priority(request), backend))
        except DeviceError as error:
            refused.append(f"{backend.name}: {error.message}")
    for priority, backend in sorted(ranked, key=lambda pair: -pair[0]):
        if priority < 0:
            break
        try:
            gpu = backend.open_gpu(request)
            return Choice(gpu, backend.name, _reason(backend, gpu, refused, lock=request.lock))
        except DeviceError as error:
            refused.append(f"{backend.name}: {error.message}")
    raise AssertionError("the null backend always opens")


def _reason(backend: Backend, gpu: Gpu, refused: list[str], *, lock: bool) -> str:
    others = f" ({'; '.join(refused)})" if refused else ""
    why_not = gpu.capabilities().why_not if lock and not isinstance(gpu, NullGpu) else None
    only_read = "" if why_not is None else f", to read only: {why_not}"
    return f"automatic: {backend.summary}{only_read}{others}"


def _named(setting: str) -> Backend:
    for backend in _BACKENDS:
        if backend.name == setting:
            return backend
    names = ", ".join(("automatic", *(backend.name for backend in _BACKENDS)))
    raise ConfigError(f"device: got {setting!r}", hint=f"one of {names}")


def _open_nvml(request: DeviceRequest) -> Gpu:
    """Open it for reading, and put a guard before its clock where clocks will be set."""
    return _guarded_if_safe(nvml.NvmlGpu(request), request, "nvml")


def _open_amdsmi(request: DeviceRequest) -> Gpu:
    return _guarded_if_safe(amdsmi.AmdGpu(request), request, "amdsmi")


def _guarded_if_safe(gpu: Gpu, request: DeviceRequest, backend: str) -> Gpu:
    """Put a guard before a clock that will be set, unless its guard could leave it locked."""
    if not request.lock or not gpu.capabilities().can_lock:
        return gpu
    why_not = None if request.allow_unguarded_container else containment.why_unguarded()
    if why_not is not None:
        return ReadOnlyGpu(gpu, f"{why_not}: {containment.REMEDY}")
    return guarded(gpu, backend, request.restore_clock_mhz)


def _open_simulated(request: DeviceRequest) -> Gpu:
    return SimulatedGpu(request.simulated or SimulatedSettings(), request.local_rank)


def _open_null(request: DeviceRequest) -> Gpu:
    return NullGpu(request.local_rank)


_BACKENDS = (
    Backend("nvml", "NVIDIA's own library", nvml.priority, _open_nvml),
    Backend("guardd", "the node's clock service", service_priority, open_service),
    Backend("amdsmi", "AMD's own library", amdsmi.priority, _open_amdsmi),
    Backend("simulated", "a GPU in software", lambda _: _NEVER_BY_ITSELF, _open_simulated),
    Backend("null", "no GPU that we know is here", lambda _: _LAST_RESORT, _open_null),
)
