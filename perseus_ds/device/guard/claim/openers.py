"""How a guard reaches the GPU that it is to set, by the backend's name."""

from __future__ import annotations

from collections.abc import Callable

from perseus_ds.device.amd.amdsmi import AmdGpu
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.nvidia.nvml import NvmlGpu
from perseus_ds.device.nvidia.zeusd import ZeusdGpu
from perseus_ds.device.request import DeviceRequest
from perseus_ds.errors import DeviceUnsupportedError

OpenGpu = Callable[[str, str], Gpu]  # (backend, uuid)

_KINDS: dict[str, Callable[[DeviceRequest], Gpu]] = {
    "nvml": NvmlGpu,
    "zeusd": ZeusdGpu,
    "amdsmi": AmdGpu,
}


def open_gpu(backend: str, uuid: str) -> Gpu:
    """Open a GPU to set its clock.

    Raises:
        DeviceError: no such GPU, or no such backend.
    """
    kind = _KINDS.get(backend)
    if kind is None:
        raise DeviceUnsupportedError(f"a guard cannot set clocks through {backend!r}: {', '.join(_KINDS)}")
    return kind(DeviceRequest(backend, uuid=uuid))
