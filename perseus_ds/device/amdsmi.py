"""AMD GPUs through amdsmi."""

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
    raise DeviceUnavailableError(
        "AMD GPUs are not supported in this version", hint='use device: "null" with mode: observe'
    )


def open_gpu(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    priority(request)
