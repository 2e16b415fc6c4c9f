"""Zeus's daemon, over HTTP on its Unix socket."""

from __future__ import annotations

from typing import NoReturn

from perseus_ds.device.request import DeviceRequest
from perseus_ds.errors import DeviceUnavailableError


def priority(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    del request
    raise DeviceUnavailableError("no zeusd client in this version", hint="use device: nvml")


def open_gpu(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    priority(request)
