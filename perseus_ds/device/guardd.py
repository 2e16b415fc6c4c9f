"""The node service that holds the right to set clocks (``perseus-ds guardd``)."""

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
        "no guardd client in this version",
        hint="run with the right to set clocks, or use device: nvml with mode: observe",
    )


def open_gpu(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    priority(request)
