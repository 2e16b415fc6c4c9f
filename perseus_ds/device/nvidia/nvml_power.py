"""Power limit, application clock, power smoothing and workload power profiles of an NVIDIA GPU, read only.

DCGM, a site's power manager and ``nvidia-smi`` all set these through the driver, so that what they set shows
here. A clock that somebody has locked does not show: NVML has no call for it.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from types import ModuleType
from typing import Protocol, TypeVar

from perseus_ds.device.operator_settings import OperatorSettings
from perseus_ds.errors import DeviceError, DeviceLostError

T = TypeVar("T")

_BITS = 32
_BLACKWELL = 10  # nvml.h, NVML_DEVICE_ARCH_*
_NOT_SET = 0xFFFFFFFF  # nvml.h 13, NVML_POWER_SMOOTHING_ADMIN_OVERRIDE_NOT_SET
_MOST_PCT = 100.0
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # nvml.h, nvmlValueType_t


class NvmlRead(Protocol):
    """Makes one call of the driver; its error becomes ours, and "not supported" becomes None."""

    def __call__(self, call: Callable[[], T], /) -> T | None:
        """Make it."""


def operator_settings(nvml: ModuleType, handle: object, ask: NvmlRead) -> OperatorSettings:
    """Read them; what a driver refuses is left out.

    Raises:
        DeviceLostError: the GPU has fallen off the bus.
    """
    limit_mw = _told(ask, lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
    usual_mw = _told(ask, lambda: int(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)))
    profiles = _told(ask, lambda: _enforced_profiles(nvml, handle))
    return OperatorSettings(
        limit_w=None if limit_mw is None else limit_mw / 1000,
        default_limit_w=None if usual_mw is None else usual_mw / 1000,
        ceiling_mhz=ceiling_mhz(nvml, handle, ask),
        smoothing=_told(ask, lambda: _smoothing(nvml, handle)),
        profiles=None if profiles is None else tuple(sorted(profiles)),
    )


def ceiling_mhz(nvml: ModuleType, handle: object, ask: NvmlRead) -> int | None:
    """The clock above which an operator does not want this GPU; 0: there is no such, ``None``: not stated.

    That is an application clock other than the default (``nvidia-smi -ac``), or a customer's boost. A lock
    would override both upwards. The default application clock is not such a ceiling: GPUs boost above it. Nor
    is a boost at the highest clock.

    Raises:
        DeviceLostError: the GPU has fallen off the bus.
    """

    def application_mhz() -> int:
        set_mhz = int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
        usual_mhz = int(nvml.nvmlDeviceGetDefaultApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
        return 0 if set_mhz == usual_mhz else set_mhz

    def boost_mhz() -> int:
        set_mhz = int(nvml.nvmlDeviceGetMaxCustomerBoostClock(handle, nvml.NVML_CLOCK_GRAPHICS))
        most_mhz = ask(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_GRAPHICS)))
        return 0 if most_mhz and set_mhz >= most_mhz else set_mhz  # an H100 states its maximum

    def least() -> int | None:
        stated = [one for one in (ask(application_mhz), ask(boost_mhz)) if one is not None]
        return min(filter(None, stated), default=0) if stated else None

    return _told(ask, least)


def _told(ask: NvmlRead, call: Callable[[], T | None]) -> T | None:
    """Make a call whose refusal, for whatever reason, proves nothing."""
    try:
        return ask(call)
    except DeviceLostError:
        raise
    except DeviceError:
        return None


def _enforced_profiles(nvml: ModuleType, handle: object) -> frozenset[int] | None:
    """Number the workload power profiles in force; ``None`` where this binding knows none.

    Source: nvml.h 13, ``nvmlDeviceWorkloadPowerProfileGetCurrentProfiles``.
    """
    if not hasattr(nvml, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"):
        return None
    current = nvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    current.version = nvml.nvmlWorkloadPowerProfileCurrentProfiles_v1
    nvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(handle, byref(current))
    words = current.enforcedProfilesMask.mask
    return frozenset(
        number for number in range(_BITS * len(words)) if words[number // _BITS] >> number % _BITS & 1
    )


def _smoothing(nvml: ModuleType, handle: object) -> str | None:
    """Put power smoothing in words: ``off``, or its preset profile and floor in percent of module power.

    The numbers of these fields have changed between releases of nvml.h, and older drivers answer them with
    others. They are asked for from Blackwell on, and believed where all of them make sense together.

    Source: nvml.h 13, ``NVML_FI_PWR_SMOOTHING_*``; assumed: untried on a Blackwell.
    """
    known = hasattr(nvml, "NVML_FI_PWR_SMOOTHING_ENABLED")
    if not known or int(nvml.nvmlDeviceGetArchitecture(handle)) < _BLACKWELL:
        return None
    enabled, least_pct, most_pct, profile = _fields(
        nvml,
        handle,
        *(
            (getattr(nvml, f"NVML_FI_PWR_SMOOTHING_{name}"), 0)
            for name in (
                "ENABLED",
                "MIN_PERCENT_TMP_FLOOR_SETTING",
                "MAX_PERCENT_TMP_FLOOR_SETTING",
                "ACTIVE_PRESET_PROFILE",
            )
        ),
    )
    if enabled not in {0, 1} or least_pct is None or most_pct is None or profile is None:
        return None
    sensible = 0.0 <= least_pct <= most_pct <= _MOST_PCT
    if not sensible or profile >= nvml.NVML_POWER_SMOOTHING_MAX_NUM_PROFILES:
        return None
    if not enabled:
        return "off"
    floor_pct = _floor_pct(nvml, handle, int(profile))
    return f"profile {profile:.0f}, floor {_in_words(floor_pct, least_pct, most_pct)}"


def _in_words(floor_pct: float | None, least_pct: float, most_pct: float) -> str:
    """A floor beyond its bounds is another release's number, or of another unit."""
    return (
        f"{floor_pct:.0f} %" if floor_pct is not None and least_pct <= floor_pct <= most_pct else "not stated"
    )


def _floor_pct(nvml: ModuleType, handle: object, profile: int) -> float | None:
    """Read the floor that an administrator has set, else that of a preset profile."""
    override_pct, preset_pct = _fields(
        nvml,
        handle,
        (nvml.NVML_FI_PWR_SMOOTHING_ADMIN_OVERRIDE_PERCENT_TMP_FLOOR, 0),
        (nvml.NVML_FI_PWR_SMOOTHING_PROFILE_PERCENT_TMP_FLOOR, profile),
    )
    return preset_pct if override_pct in {None, _NOT_SET} else override_pct


def _fields(nvml: ModuleType, handle: object, *fields: tuple[int, int]) -> list[float | None]:
    """Read field values by number and scope; ``None`` where the driver does not answer one."""
    answers = nvml.nvmlDeviceGetFieldValues(handle, list(fields))
    return [
        float(getattr(one.value, _VALUES[one.valueType]))
        if one.nvmlReturn == 0 and one.valueType < len(_VALUES)
        else None
        for one in answers
    ]
