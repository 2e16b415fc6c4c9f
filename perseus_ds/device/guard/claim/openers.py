"""How a guard reaches the GPU that it is to set, by the backend's name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perseus_ds.device.amd.amdsmi import AmdGpu
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim.patience import insist
from perseus_ds.device.nvidia.nvml import NvmlGpu
from perseus_ds.device.request import DeviceRequest
from perseus_ds.errors import DeviceAbsentError, DeviceError, DeviceUnsupportedError

_ABSENT_S = 2.0

OpenGpu = Callable[[str, str], Gpu]  # (backend, uuid)

_KINDS: dict[str, Callable[[DeviceRequest], Gpu]] = {"nvml": NvmlGpu, "amdsmi": AmdGpu}


def open_gpu(backend: str, uuid: str) -> Gpu:
    """Open a GPU to set its clock.

    Raises:
        DeviceError: no such GPU, or no such backend.
    """
    kind = _KINDS.get(backend)
    if kind is None:
        raise DeviceUnsupportedError(f"a guard cannot set clocks through {backend!r}: {', '.join(_KINDS)}")
    return kind(DeviceRequest(backend, uuid=uuid))


@contextmanager
def opened_to_put_back(open_gpu: OpenGpu, backend: str, uuid: str) -> Iterator[Gpu]:
    """Open a GPU whose clock has to be put back, and close it even if the driver refuses to.

    Raises:
        DeviceAbsentError: the driver has reported for a while that there is no such GPU.
        DeviceError: it does not open, or lists no clocks, without which a lock cannot be recognised.
    """
    gpu = insist(
        lambda: open_gpu(backend, uuid),
        for_s=_ABSENT_S,
        passes=lambda error: isinstance(error, DeviceAbsentError),
    )
    try:
        if not gpu.capabilities().clocks_mhz:
            raise DeviceUnsupportedError(f"{uuid} lists no clocks")
        yield gpu
    finally:
        with contextlib.suppress(DeviceError):
            gpu.close()
