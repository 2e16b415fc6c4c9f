"""The node service that may set clocks (``perseus-ds guardd``): clocks there, readings here."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError
from perseus_ds.guard.client import DEFAULT_SOCKET, GuardClient, GuardedGpu, connect
from perseus_ds.guard.protocol import ask, encode

_PRIORITY_WITH_LOCK, _PRIORITY_READ_ONLY = 95.0, 10.0


def priority(request: DeviceRequest) -> float:
    """Return the best where clocks will be set: an operator who runs the service wants it used.

    Raises:
        DeviceError: no service, no right to this GPU, or no such GPU here.
    """
    with connect(socket_path()) as sock, NvmlGpu(request) as gpu:
        if request.lock:
            ask(sock, encode({"do": "may", "uuid": gpu.identify().uuid, "backend": "nvml"}))
    return _PRIORITY_WITH_LOCK if request.lock else _PRIORITY_READ_ONLY


def open_gpu(request: DeviceRequest) -> Gpu:
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
