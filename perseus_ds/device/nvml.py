"""NVIDIA GPUs through NVML: the only importer of pynvml, and only inside functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ctypes import byref
from functools import partial
from types import ModuleType
from typing import Protocol, TypeVar

from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    DeviceRequest,
    EventReason,
    Identity,
    LibraryGpu,
    OperatorSettings,
    missing_right,
)
from perseus_ds.errors import (
    DeviceAbsentError,
    DeviceError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)

# From NVML's error codes to ours: the one table.

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


# What not every driver and GPU answers: power just now, who works on it, whether memory clocks lock.

_AMPERE, _HOPPER = 7, 9  # nvml.h, NVML_DEVICE_ARCH_*
_OF_GPU = 0  # nvml.h, NVML_POWER_SCOPE_GPU
_LEAST_USED_BYTES = 256 << 20  # assumed: less than any training job, more than a driver keeps for itself


def instant_power_w(nvml: ModuleType, handle: object) -> float | None:
    """Read the power of the GPU itself at this instant; ``None`` where binding or driver know no such field.

    `nvmlDeviceGetPowerUsage` is a mean over a second on most GPUs since Ampere.

    Source: nvml.h 13, ``NVML_FI_DEV_POWER_INSTANT`` (milliwatts), ``scopeId`` 0: the GPU, 1: its module.
    """
    field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
    if field is None:
        return None
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [(field, _OF_GPU)])
    return None if answer.nvmlReturn != 0 else answer.value.uiVal / 1000


def chip_temperature_c(nvml: ModuleType, handle: object) -> float:
    """Read the chip's temperature by its present name, or by the older one.

    Source: nvml.h 13, ``nvmlDeviceGetTemperatureV``; ``nvmlDeviceGetTemperature`` goes with CUDA 14.
    """
    if hasattr(nvml, "nvmlDeviceGetTemperatureV"):
        with suppress(nvml.NVMLError_FunctionNotFound):
            return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))
    return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))


def why_no_memory_clock(nvml: ModuleType, handle: object, memory_clocks_mhz: tuple[int, ...]) -> str | None:
    """Return why the memory clock cannot be locked, as far as it shows without trying; ``None``: it can.

    It is not tried: NVML informs nobody which memory clock an operator has locked, so that a trial could not
    put it back.

    Source: nvml.h 13, ``nvmlDeviceSetMemoryLockedClocks`` ("Ampere or newer"); Hopper: ``nvidia-smi -lmcd``.
    """
    if len(memory_clocks_mhz) <= 1:
        return "there is one memory clock only" if memory_clocks_mhz else "it lists no memory clocks"
    architecture = int(nvml.nvmlDeviceGetArchitecture(handle))
    if architecture < _AMPERE:
        return "that needs Ampere or newer"
    if architecture == _HOPPER:
        return "Hopper takes one only at the next load of the driver"
    return None


def process_on(nvml: ModuleType, handle: object) -> str:
    """Return which process computes on a GPU; empty: none that is visible from here."""
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return f"process {processes[0].pid} computes on it" if processes else ""


def load_on(nvml: ModuleType, handle: object) -> str:
    """Return how busy a GPU is; empty: not at all."""
    load_pct = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return f"its load is {load_pct} %" if load_pct else ""


def memory_used_on(nvml: ModuleType, handle: object) -> str:
    """Return how much memory of a GPU is in use, beyond what a driver takes; empty: none to report of."""
    used_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    return f"{used_bytes >> 20} MiB of it are in use" if used_bytes >= _LEAST_USED_BYTES else ""


SIGNS_OF_WORK = (process_on, load_on, memory_used_on)
"""All are asked: a container, for one, does not see the processes of others."""

# Power limit, application clock, power smoothing and workload power profiles of an NVIDIA GPU, read only.
#
# DCGM, a site's power manager and ``nvidia-smi`` all set these through the driver, so that what they set
# shows here. A clock that somebody has locked does not show: NVML has no call for it.

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


_COUNTER_PERIOD_S = 0.100  # arXiv 2312.02741; calibration measures it
_SWITCH_CALL_S = 0.010  # one public log of an A100; calibration measures it
_SWITCH_LATENCY_S = 0.037
_PRIORITY_WITH_LOCK, _PRIORITY_READ_ONLY = 90.0, 20.0
_INSTALL = "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"


def priority(request: DeviceRequest) -> float:
    """Return how well NVML serves a request: well with the right to set clocks, poorly without.

    Raises:
        DeviceError: no driver, no such device, a MIG slice, or the wrong ``pynvml``.
    """
    NvmlGpu(request).close()
    return _PRIORITY_READ_ONLY if request.lock and missing_right() is not None else _PRIORITY_WITH_LOCK


class NvmlGpu(LibraryGpu):
    """A NVIDIA GPU. Locking needs root or CAP_SYS_ADMIN, and the lock outlives this process."""

    def __init__(self, request: DeviceRequest) -> None:
        self._nvml = load_nvml()
        self._what = _describe(request)
        self._ask(self._nvml.nvmlInit, name="start NVML")
        self._open = True
        try:
            self._handle = self._find(request)
            self._refuse_mig()
            self._identity = self._read_identity()
            self._capabilities = self._read_capabilities()
        except DeviceError:
            self.close()
            raise

    def lock_clock(self, clock_mhz: int) -> None:
        """Store a locked clock in the driver.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            ValueRefusedError: the driver lists this clock and refuses it.
            DevicePermissionError: neither root nor CAP_SYS_ADMIN.
            DeviceLostError: the GPU has fallen off the bus.
        """
        self._lock(
            clock_mhz,
            lambda: self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, clock_mhz, clock_mhz),
            name=f"lock {clock_mhz} MHz",
        )

    def reset_clock(self) -> None:
        """Remove the lock from the driver.

        Raises:
            DevicePermissionError: neither root nor CAP_SYS_ADMIN: what is locked stays locked.
        """
        self._ask(lambda: self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle), name="reset the clock")

    def achieved(self) -> Achieved:
        """Read SM and memory clock, and why they are so: the reasons before and after."""
        before = self._ask(self._reasons, name="read event reasons")
        clock_mhz, memory_mhz = self._clock(self._nvml.NVML_CLOCK_SM), self._clock(self._nvml.NVML_CLOCK_MEM)
        after = self._ask(self._reasons, name="read event reasons")
        return Achieved(clock_mhz, memory_mhz, EventReason((before | after) & _KNOWN_BITS))

    def _clock(self, sort: int) -> int:
        return self._ask(
            lambda: int(self._nvml.nvmlDeviceGetClockInfo(self._handle, sort)), name="read clock"
        )

    def energy_j(self) -> float:
        """Read the counter, which counts millijoules since the driver was loaded."""
        energy_mj = self._ask(
            lambda: int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)), name="read energy"
        )
        return energy_mj / 1000

    def power_w(self) -> float | None:
        """Read instantaneous power, of the GPU and not of its module; ``None`` on drivers before 530."""
        return self._optional(lambda: instant_power_w(self._nvml, self._handle))

    def temperature_c(self) -> float | None:
        """Read the chip's sensor, in whole degrees; ``None`` where the driver states none."""
        return self._optional(lambda: chip_temperature_c(self._nvml, self._handle))

    def operator_settings(self) -> OperatorSettings:
        """Read power limit, application clock, power smoothing and workload power profiles."""
        return operator_settings(self._nvml, self._handle, self._optional)

    def opened_elsewhere(self) -> tuple[str, str]:
        """Return NVML's backend and this UUID."""
        return "nvml", self._identity.uuid

    def device_file(self) -> str | None:
        """The driver's character device, by the device's minor number."""
        minor = self._optional(lambda: int(self._nvml.nvmlDeviceGetMinorNumber(self._handle)))
        return None if minor is None else f"/dev/nvidia{minor}"

    def busy(self) -> str | None:
        """Judge by compute processes, load and memory; a driver that shows none of them counts as busy."""
        told = [self._optional(partial(sign, self._nvml, self._handle)) for sign in SIGNS_OF_WORK]
        if all(one is None for one in told):
            return "its driver does not report whether it is in use"
        return next(filter(None, told), None)

    def load_pct(self) -> int | None:
        """Read the driver's own figure, of the last sixth of a second to second."""
        return self._optional(lambda: int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu))

    def _shut_down(self) -> None:
        self._nvml.nvmlShutdown()

    def _find(self, request: DeviceRequest) -> object:
        nvml = self._nvml
        if request.uuid is not None:
            uuid = full_uuid(request.uuid)
            return self._ask(lambda: nvml.nvmlDeviceGetHandleByUUID(uuid), name=f"find {uuid}", looks_up=True)
        if request.pci_bus_id is not None:
            bus = request.pci_bus_id
            return self._ask(
                lambda: nvml.nvmlDeviceGetHandleByPciBusId(bus), name=f"find {bus}", looks_up=True
            )
        index = request.local_rank
        return self._ask(
            lambda: nvml.nvmlDeviceGetHandleByIndex(index), name=f"find NVML index {index}", looks_up=True
        )

    def _refuse_mig(self) -> None:
        mode = self._optional(lambda: int(self._nvml.nvmlDeviceGetMigMode(self._handle)[0]))
        if mode == self._nvml.NVML_DEVICE_MIG_ENABLE:
            raise DeviceUnsupportedError(
                f"{self._what} has MIG on: its slices have no clock or energy of their own",
                hint="nvidia-smi -mig 0, or use device: null",
            )

    def _read_identity(self) -> Identity:
        nvml, handle = self._nvml, self._handle
        return self._ask(
            lambda: Identity(
                name=_text(nvml.nvmlDeviceGetName(handle)),
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                pci_bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId),
                driver=_text(nvml.nvmlSystemGetDriverVersion()),
                index=int(nvml.nvmlDeviceGetIndex(handle)),
            ),
            name="identify",
        )

    def _read_capabilities(self) -> Capabilities:
        nvml, handle = self._nvml, self._handle
        memory = self._optional(lambda: tuple(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))) or ()
        clocks = (
            self._optional(lambda: tuple(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory[0])))
            if memory
            else None
        )
        most_mhz = ceiling_mhz(nvml, handle, self._optional)
        clocks = tuple(one for one in clocks or () if not most_mhz or one <= most_mhz)
        counted = self._optional(lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
        persistent = self._optional(lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)))
        why_not = missing_right() if clocks else f"{self._what} lists no clocks"
        return Capabilities(
            tuple(sorted(clocks, reverse=True)),
            tuple(sorted(memory, reverse=True)),
            can_lock=why_not is None,
            why_not=why_not,
            counter_period_s=None if counted is None else _COUNTER_PERIOD_S,
            switch_latency_s=_SWITCH_LATENCY_S,
            switch_call_s=_SWITCH_CALL_S,
            persistence=None if persistent is None else bool(persistent),
            memory_why_not=self._why_no_memory_clock(tuple(memory)) or why_not,
        )

    def _why_no_memory_clock(self, memory_clocks_mhz: tuple[int, ...]) -> str | None:
        try:
            return why_no_memory_clock(self._nvml, self._handle, memory_clocks_mhz)
        except self._nvml.NVMLError as error:
            return str(error)

    def _reasons(self) -> int:
        """Event reasons under their present name, or the one that drivers before 535 had."""
        try:
            return int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except self._nvml.NVMLError_FunctionNotFound:
            return int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _ask(self, call: Callable[[], T], *, name: str, looks_up: bool = False) -> T:
        """Make one NVML call; its error becomes ours."""
        try:
            return call()
        except self._nvml.NVMLError as error:
            raise translated(int(error.value), f"{self._what}: {name}", looks_up=looks_up) from error


_KNOWN_BITS = sum(reason.value for reason in EventReason)


def load_nvml() -> ModuleType:
    """Import NVIDIA's pynvml, and see that it is the right one.

    Raises:
        DeviceUnavailableError: the package is absent, or another package has that name.
    """
    try:
        import pynvml  # noqa: PLC0415 - only when a GPU is asked for
    except ImportError as error:
        raise DeviceUnavailableError("no pynvml here", hint="pip install nvidia-ml-py") from error
    if not hasattr(pynvml, "nvmlDeviceSetGpuLockedClocks") or not hasattr(
        pynvml, "NVMLError_FunctionNotFound"
    ):
        found = getattr(pynvml, "__file__", "an unknown place")
        raise DeviceUnavailableError(f"pynvml at {found} is not NVIDIA's nvidia-ml-py", hint=_INSTALL)
    module: ModuleType = pynvml
    return module


def full_uuid(uuid: str) -> str:
    """Give a device's UUID the prefix that torch leaves out.

    Raises:
        DeviceUnsupportedError: the UUID is a MIG slice's.
    """
    if uuid.startswith("MIG-"):
        raise DeviceUnsupportedError(
            f"{uuid} is a MIG slice: it has no clock or energy of its own", hint="use a whole GPU"
        )
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def _describe(request: DeviceRequest) -> str:
    if request.uuid is not None:
        return f"GPU {request.uuid}"
    return f"GPU at {request.pci_bus_id}" if request.pci_bus_id is not None else f"GPU {request.local_rank}"


def _text(value: str | bytes) -> str:
    """Text from any generation of pynvml."""
    return value.decode() if isinstance(value, bytes) else value
