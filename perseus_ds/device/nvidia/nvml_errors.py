"""From NVML's error codes to ours: the one table."""

from __future__ import annotations

from perseus_ds.errors import (
    DeviceAbsentError,
    DeviceError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)

_ROOT = "run as root, give CAP_SYS_ADMIN, or run perseus-ds guardd on the node"
_DRIVER = "check that nvidia-smi works here"
_COMPARE = "compare nvidia-smi -L with CUDA_VISIBLE_DEVICES"
_NOT_FOUND = 6

# Source: nvml.h 13, enum nvmlReturn_t.
_TABLE: dict[int, tuple[type[DeviceError], str, str | None]] = {
    1: (DeviceUnavailableError, "NVML is not initialised", None),
    2: (ValueRefusedError, "a value that the device does not take", None),
    3: (DeviceUnsupportedError, "not supported by this device", None),
    4: (DevicePermissionError, "no right to do this", _ROOT),
    6: (DeviceUnavailableError, "no such device", _COMPARE),
    8: (DeviceLostError, "the device lacks external power", None),
    9: (DeviceUnavailableError, "the NVIDIA driver is not loaded", _DRIVER),
    10: (DeviceError, "time-out in the driver", None),
    12: (DeviceUnavailableError, "no driver (libnvidia-ml.so.1 not found)", _DRIVER),
    13: (DeviceUnsupportedError, "this driver is too old for the call", "update the NVIDIA driver"),
    15: (DeviceLostError, "the GPU is lost (fallen off the bus)", "reboot the node"),
    16: (DeviceLostError, "the GPU needs a reset", "nvidia-smi --gpu-reset, or reboot the node"),
    17: (DevicePermissionError, "blocked by the operating system (cgroups)", "give this process the device"),
    18: (
        DeviceUnavailableError,
        "driver and library versions differ",
        "reboot, or reload the driver after its update",
    ),
    19: (DeviceUnavailableError, "the device is in use", None),
    25: (
        DeviceUnsupportedError,
        "the arguments' version is unknown to this driver",
        "update the NVIDIA driver",
    ),
}


def translated(code: int, what: str, *, looks_up: bool = False) -> DeviceError:
    """Make our error from NVML's code; ``what`` is the call in words, with the device.

    Only a call that ``looks_up`` a device shows that it is not there: any other may fail with that code too.
    """
    if looks_up and code == _NOT_FOUND:
        return DeviceAbsentError(f"{what}: no such device (NVML error {code})", hint=_COMPARE)
    kind, meaning, hint = _TABLE.get(code, (DeviceError, "the driver failed", None))
    return kind(f"{what}: {meaning} (NVML error {code})", hint=hint)
