"""From amdsmi's status codes to our errors: the one table."""

from __future__ import annotations

from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)

_ROOT = "run as root"
_DRIVER = "check that amd-smi works here"

# Source: amdsmi.h 7.0, enum amdsmi_status_t.
_TABLE: dict[int, tuple[type[DeviceError], str, str | None]] = {
    1: (ValueRefusedError, "a value that the device does not take", None),
    2: (DeviceUnsupportedError, "not supported by this device", None),
    3: (DeviceUnsupportedError, "not supported by this library yet", None),
    8: (DeviceError, "time-out in the driver", None),
    10: (DevicePermissionError, "no right to do this", _ROOT),
    13: (DeviceLostError, "the device does not answer", "reboot the node"),
    14: (DeviceUnsupportedError, "the driver has no such file", None),
    18: (DeviceUnavailableError, "the library cannot start", _DRIVER),
    30: (DeviceUnavailableError, "the device is busy", None),
    31: (DeviceUnavailableError, "no such device", "amd-smi list"),
    32: (DeviceUnavailableError, "amdsmi is not initialised", None),
    34: (DeviceUnavailableError, "the amdgpu driver is not loaded", _DRIVER),
    40: (DeviceUnsupportedError, "the device gives no such data", None),
    52: (DeviceUnsupportedError, "the driver has no such file", None),
    54: (DeviceLostError, "the driver could not be restarted", "reboot the node"),
    55: (DeviceUnsupportedError, "this cannot be set just now", None),
}


def translated(code: int, what: str) -> DeviceError:
    """Make our error from amdsmi's code; ``what`` is the call in words, with the device."""
    kind, meaning, hint = _TABLE.get(code, (DeviceError, "the driver failed", None))
    return kind(f"{what}: {meaning} (amdsmi error {code})", hint=hint)
