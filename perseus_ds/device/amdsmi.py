"""AMD GPUs: recognised, and refused with the reason, until somebody has measured one.

What is missing is not the calls (``amdsmi_set_gpu_clk_limit``, reset by performance level AUTO) but a check
on a real part: its energy accumulator is wrong on some, and a plan made from it would be too.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NoReturn

from perseus_ds.device.request import DeviceRequest
from perseus_ds.errors import DeviceUnavailableError


def priority(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    del request
    if find_spec("amdsmi") is None:
        raise DeviceUnavailableError("no amdsmi here")
    raise DeviceUnavailableError(
        "AMD GPUs are not supported yet: nobody has checked their energy counter against this package",
        hint="use device: null with mode: observe",
    )


def open_gpu(request: DeviceRequest) -> NoReturn:
    """Refuse with the reason.

    Raises:
        DeviceUnavailableError: always.
    """
    priority(request)
