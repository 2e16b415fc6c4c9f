"""The NVIDIA GPUs of this machine, looked at and never touched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from perseus_ds.device import Achieved, Backend, Capabilities, DeviceRequest, Gpu, Identity, OperatorSettings
from perseus_ds.device.choose import backends
from perseus_ds.device.conflict import apparent_lock_mhz
from perseus_ds.device.guard.claim.patience import insist, whatever
from perseus_ds.device.nvidia.nvml import load_nvml
from perseus_ds.device.nvidia.nvml_errors import translated
from perseus_ds.errors import DeviceError


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU: what it is and can do, and what it does just now (None where it does not state)."""

    identity: Identity
    capabilities: Capabilities
    achieved: Achieved | None
    energy_j: float | None
    power: OperatorSettings | None

    @property
    def standing_mhz(self) -> int | None:
        """The clock at which it stands as if somebody had locked it; None where it does not."""
        return None if self.achieved is None else apparent_lock_mhz((self.achieved,), self.capabilities)


@dataclass(frozen=True, slots=True)
class RefusedGpu:
    """A GPU that cannot be opened, or NVML itself (``index`` None): why, and what to do."""

    index: int | None
    what: str
    remedy: str | None

    def __str__(self) -> str:
        return self.what if self.remedy is None else f"{self.what} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """GPUs that NVML lists: those that can be used, and those that cannot."""

    gpus: tuple[SeenGpu, ...]
    refused: tuple[RefusedGpu, ...]

    @property
    def known(self) -> frozenset[int]:
        """The indices of all of them."""
        lost = (one.index for one in self.refused if one.index is not None)
        return frozenset([*(gpu.identity.index for gpu in self.gpus), *lost])


def local_gpus(*, patience_s: float = 0.0) -> LocalGpus:
    """Open one NVML index after the other, for reading; a driver that refuses is asked again for so long."""
    nvml = next(backend for backend in backends() if backend.name == "nvml")
    gpus: list[SeenGpu] = []
    refused: list[RefusedGpu] = []
    try:
        indices = range(insist(_count, for_s=patience_s, passes=whatever))
    except DeviceError as error:
        return LocalGpus((), (RefusedGpu(None, error.message, error.hint),))
    for index in indices:
        try:
            gpus.append(insist(partial(_look, nvml, index), for_s=patience_s, passes=whatever))
        except DeviceError as error:
            refused.append(RefusedGpu(index, error.message, error.hint))
    return LocalGpus(tuple(gpus), tuple(refused))


def _count() -> int:
    """Ask NVML how many GPUs there are.

    Raises:
        DeviceError: no NVML, no driver.
    """
    nvml = load_nvml()
    try:
        nvml.nvmlInit()
        try:
            return int(nvml.nvmlDeviceGetCount())
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise translated(int(error.value), "count GPUs") from error


def _look(nvml: Backend, index: int) -> SeenGpu:
    with nvml.open_gpu(DeviceRequest("nvml", local_rank=index, lock=False)) as gpu:
        return SeenGpu(gpu.identify(), gpu.capabilities(), _achieved(gpu), _energy_j(gpu), _power(gpu))


def _achieved(gpu: Gpu) -> Achieved | None:
    try:
        return gpu.achieved()
    except DeviceError:
        return None


def _energy_j(gpu: Gpu) -> float | None:
    try:
        return gpu.energy_j()
    except DeviceError:
        return None


def _power(gpu: Gpu) -> OperatorSettings | None:
    try:
        return gpu.operator_settings()
    except DeviceError:
        return None
