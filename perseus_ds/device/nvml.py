"""NVIDIA GPUs through NVML: the only importer of pynvml, and only inside functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ctypes import byref
from operator import attrgetter
from types import ModuleType
from typing import TypeVar

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

T = TypeVar("T")

_ROOT = "run as root, give CAP_SYS_ADMIN, or run perseus-ds guardd on the node"
_DRIVER = "check that nvidia-smi works here"
_UPDATE = "update the NVIDIA driver"
_COMPARE = "compare nvidia-smi -L with CUDA_VISIBLE_DEVICES"
_INSTALL = "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
_NOT_FOUND = 6

# Source: nvml.h 13, enum nvmlReturn_t.
_ERRORS: dict[int, tuple[type[DeviceError], str, str | None]] = {
    1: (DeviceUnavailableError, "NVML is not initialised", None),
    2: (ValueRefusedError, "a value that the device does not take", None),
    3: (DeviceUnsupportedError, "not supported by this device", None),
    4: (DevicePermissionError, "no right to do this", _ROOT),
    6: (DeviceUnavailableError, "no such device", _COMPARE),
    8: (DeviceLostError, "the device lacks external power", None),
    9: (DeviceUnavailableError, "the NVIDIA driver is not loaded", _DRIVER),
    10: (DeviceError, "time-out in the driver", None),
    12: (DeviceUnavailableError, "no driver (libnvidia-ml.so.1 not found)", _DRIVER),
    13: (DeviceUnsupportedError, "this driver is too old for the call", _UPDATE),
    15: (DeviceLostError, "the GPU is lost (fallen off the bus)", "reboot the node"),
    16: (DeviceLostError, "the GPU needs a reset", "nvidia-smi --gpu-reset, or reboot the node"),
    17: (DevicePermissionError, "blocked by the operating system (cgroups)", "give this process the device"),
    18: (DeviceUnavailableError, "driver and library versions differ", "reload the driver, or reboot"),
    19: (DeviceUnavailableError, "the device is in use", None),
    25: (DeviceUnsupportedError, "the arguments' version is unknown to this driver", _UPDATE),
}

_COUNTER_PERIOD_S = 0.100  # arXiv 2312.02741; calibration measures it
_SWITCH_CALL_S = 0.010  # one public log of an A100; calibration measures it
_SWITCH_LATENCY_S = 0.037
_KNOWN_BITS = sum(reason.value for reason in EventReason)
_BLACKWELL = 10  # nvml.h, NVML_DEVICE_ARCH_*
_OF_GPU = 0  # nvml.h, NVML_POWER_SCOPE_GPU
_MIN_USED_BYTES = 256 << 20  # assumed: less than any training job, more than a driver keeps for itself
_BITS = 32


class NvmlGpu(LibraryGpu):
    """A NVIDIA GPU. Locking needs root or CAP_SYS_ADMIN, and the lock outlives this process."""

    backend = "nvml"

    def __init__(self, request: DeviceRequest) -> None:
        self._nvml = load_nvml()
        self._vendor_error, self._code_of = self._nvml.NVMLError, attrgetter("value")
        self._what = f"GPU {request.uuid or request.local_rank}"
        if request.uuid is None and request.pci_bus_id is not None:
            self._what = f"GPU at {request.pci_bus_id}"
        with self._open_library(self._nvml.nvmlInit):
            self._handle = self._find(request)
            mode = self._optional(lambda: self._nvml.nvmlDeviceGetMigMode(self._handle)[0])
            if mode == self._nvml.NVML_DEVICE_MIG_ENABLE:
                raise DeviceUnsupportedError(
                    f"{self._what} has MIG on: its slices have no clock or energy of their own",
                    hint="nvidia-smi -mig 0, or use device: null",
                )
            self._identity = self._read_identity()
            self._capabilities = self._read_capabilities()

    def lock_clock(self, clock_mhz: int) -> None:
        self._lock(
            clock_mhz, lambda: self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, clock_mhz, clock_mhz)
        )

    def reset_clock(self) -> None:
        self._ask(lambda: self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle), name="reset the clock")

    def achieved(self) -> Achieved:
        """Read the clock, and why it is so: the reasons before and after."""
        nvml, handle = self._nvml, self._handle
        before = self._ask(self._reasons, name="read event reasons")
        clock_mhz = self._ask(
            lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)), name="read clock"
        )
        after = self._ask(self._reasons, name="read event reasons")
        return Achieved(clock_mhz, EventReason((before | after) & _KNOWN_BITS))

    def energy_j(self) -> float:
        return self._ask(self._count_mj, name="read energy") / 1000

    def power_w(self) -> float | None:
        """Read instantaneous power, of the GPU and not of its module; ``None`` on drivers before 530.

        `nvmlDeviceGetPowerUsage` is a mean over a second on most GPUs since Ampere.

        Source: nvml.h 13, ``NVML_FI_DEV_POWER_INSTANT`` (milliwatts), ``scopeId`` 0: the GPU, 1: its module.
        """
        power_mw = self._optional(lambda: self._field("NVML_FI_DEV_POWER_INSTANT"))
        return None if power_mw is None else power_mw / 1000

    def temperature_c(self) -> float | None:
        """Read the chip's sensor, in whole degrees, by its present name or by the older one.

        Source: nvml.h 13, ``nvmlDeviceGetTemperatureV``; ``nvmlDeviceGetTemperature`` goes with CUDA 14.
        """
        nvml, handle = self._nvml, self._handle

        def read() -> float:
            if hasattr(nvml, "nvmlDeviceGetTemperatureV"):
                with suppress(nvml.NVMLError_FunctionNotFound):
                    return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))
            return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))

        return self._optional(read)

    def operator_settings(self) -> OperatorSettings:
        """Read power limit, application clock, power smoothing and profiles; a refusal proves nothing.

        DCGM, a site's power manager and ``nvidia-smi`` all set these through the driver, so that what they
        set shows here. A clock that somebody has locked does not show: NVML has no call for it.
        """
        nvml, handle = self._nvml, self._handle
        limit_mw = self._read_if_stated(lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
        usual_mw = self._read_if_stated(lambda: int(nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)))
        return OperatorSettings(
            limit_w=None if limit_mw is None else limit_mw / 1000,
            default_limit_w=None if usual_mw is None else usual_mw / 1000,
            ceiling_mhz=self._ceiling_mhz(),
            smoothing=self._read_if_stated(self._read_smoothing),
            profiles=self._read_if_stated(self._profiles),
        )

    def device_file(self) -> str | None:
        minor = self._optional(lambda: int(self._nvml.nvmlDeviceGetMinorNumber(self._handle)))
        return None if minor is None else f"/dev/nvidia{minor}"

    def busy(self) -> str | None:
        """Judge by compute processes, load and memory; a driver that shows none of them counts as busy.

        All are asked: a container, for one, does not see the processes of others.
        """
        nvml, handle = self._nvml, self._handle
        processes = self._optional(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        load_pct = self.load_pct()
        used_bytes = self._optional(
            lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
        )
        if processes:
            return f"process {processes[0].pid} computes on it"
        if load_pct:
            return f"its load is {load_pct} %"
        if used_bytes is not None and used_bytes >= _MIN_USED_BYTES:
            return f"{used_bytes >> 20} MiB of it are in use"
        if processes is None and load_pct is None and used_bytes is None:
            return "its driver does not report whether it is in use"
        return None

    def load_pct(self) -> int | None:
        """Read the driver's own figure, of the last sixth of a second to second."""
        return self._optional(lambda: int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu))

    def _find(self, request: DeviceRequest) -> object:
        """Look the device up: only this shows that it is not there; other calls may fail with that code."""
        nvml = self._nvml
        try:
            if request.uuid is not None:
                return nvml.nvmlDeviceGetHandleByUUID(full_uuid(request.uuid))
            if request.pci_bus_id is not None:
                return nvml.nvmlDeviceGetHandleByPciBusId(request.pci_bus_id)
            return nvml.nvmlDeviceGetHandleByIndex(request.local_rank)
        except nvml.NVMLError as error:
            what = f"{self._what}: find it"
            if error.value == _NOT_FOUND:
                message = f"{what}: no such device (NVML error {_NOT_FOUND})"
                raise DeviceAbsentError(message, hint=_COMPARE) from error
            raise nvml_error(int(error.value), what) from error

    def _read_identity(self) -> Identity:
        nvml, handle = self._nvml, self._handle
        return self._ask(
            lambda: Identity(
                name=nvml.nvmlDeviceGetName(handle),
                uuid=nvml.nvmlDeviceGetUUID(handle),
                pci_bus_id=nvml.nvmlDeviceGetPciInfo(handle).busId,
                driver=nvml.nvmlSystemGetDriverVersion(),
                index=int(nvml.nvmlDeviceGetIndex(handle)),
            ),
            name="identify",
        )

    def _read_capabilities(self) -> Capabilities:
        nvml, handle = self._nvml, self._handle
        memory = self._optional(lambda: tuple(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))) or ()
        clocks: tuple[int, ...] = ()
        if memory:
            clocks = (
                self._optional(lambda: tuple(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory[0])))
                or ()
            )
        ceiling_mhz = self._ceiling_mhz()
        clocks = tuple(one for one in clocks if not ceiling_mhz or one <= ceiling_mhz)
        has_counter = self._optional(self._count_mj) is not None
        persistent = self._optional(lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)))
        why_not = missing_right() if clocks else f"{self._what} lists no clocks"
        return Capabilities(
            tuple(sorted(clocks, reverse=True)),
            tuple(sorted(memory, reverse=True)),
            can_lock=why_not is None,
            why_not=why_not,
            counter_period_s=_COUNTER_PERIOD_S if has_counter else None,
            switch_latency_s=_SWITCH_LATENCY_S,
            switch_call_s=_SWITCH_CALL_S,
            persistence=None if persistent is None else bool(persistent),
        )

    def _count_mj(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _reasons(self) -> int:
        """Event reasons under their present name, or the one that drivers before 535 had."""
        try:
            return int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except self._nvml.NVMLError_FunctionNotFound:
            return int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _ceiling_mhz(self) -> int | None:
        """The clock above which an operator does not want this GPU; 0: there is none, ``None``: not stated.

        That is an application clock other than the default (``nvidia-smi -ac``), or a customer's boost. A
        lock would override both upwards. The default application clock is not such a ceiling: GPUs boost
        above it. Nor is a boost at the highest clock, which an H100 states.
        """
        nvml, handle = self._nvml, self._handle

        def application_mhz() -> int:
            set_mhz = int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
            usual_mhz = int(nvml.nvmlDeviceGetDefaultApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
            return 0 if set_mhz == usual_mhz else set_mhz

        def boost_mhz() -> int:
            set_mhz = int(nvml.nvmlDeviceGetMaxCustomerBoostClock(handle, nvml.NVML_CLOCK_GRAPHICS))
            max_mhz = self._optional(
                lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_GRAPHICS))
            )
            return 0 if max_mhz and set_mhz >= max_mhz else set_mhz

        stated = [one for one in map(self._read_if_stated, (application_mhz, boost_mhz)) if one is not None]
        return min(filter(None, stated), default=0) if stated else None

    def _read_smoothing(self) -> bool | None:
        """State of power smoothing, from Blackwell on: older drivers give its field another meaning.

        Source: nvml.h 13, ``NVML_FI_PWR_SMOOTHING_ENABLED``; assumed: untried on a Blackwell.
        """
        if int(self._nvml.nvmlDeviceGetArchitecture(self._handle)) < _BLACKWELL:
            return None
        enabled = self._field("NVML_FI_PWR_SMOOTHING_ENABLED")
        return bool(enabled) if enabled in {0, 1} else None

    def _profiles(self) -> tuple[int, ...] | None:
        """Number the workload power profiles in force; ``None`` where this binding knows none.

        Source: nvml.h 13, ``nvmlDeviceWorkloadPowerProfileGetCurrentProfiles``.
        """
        nvml = self._nvml
        if not hasattr(nvml, "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"):
            return None
        current = nvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
        current.version = nvml.nvmlWorkloadPowerProfileCurrentProfiles_v1
        nvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(self._handle, byref(current))
        words = current.enforcedProfilesMask.mask
        return tuple(bit for bit in range(_BITS * len(words)) if words[bit // _BITS] >> bit % _BITS & 1)

    def _field(self, name: str) -> int | None:
        """Read a field's value as an unsigned int; ``None`` where binding or driver know no such field."""
        if not hasattr(self._nvml, name):
            return None
        fields = [(getattr(self._nvml, name), _OF_GPU)]
        (answer,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, fields)
        return None if answer.nvmlReturn != 0 else int(answer.value.uiVal)

    def _read_if_stated(self, call: Callable[[], T | None]) -> T | None:
        """Make a call whose refusal, for whatever reason, proves nothing; a lost GPU is an error."""
        try:
            return self._optional(call)
        except DeviceLostError:
            raise
        except DeviceError:
            return None

    def _error_of(self, code: int, what: str) -> DeviceError:
        return nvml_error(code, what)

    def _shut_down(self) -> None:
        self._nvml.nvmlShutdown()


def nvml_error(code: int, what: str) -> DeviceError:
    """Make our error from NVML's code; ``what`` is the call in words, with the device."""
    kind, meaning, hint = _ERRORS.get(code, (DeviceError, "the driver failed", None))
    return kind(f"{what}: {meaning} (NVML error {code})", hint=hint)


def load_nvml() -> ModuleType:
    """Import NVIDIA's pynvml, and see that it is the right one: another package has that name too."""
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
    """Give a device's UUID the prefix that torch leaves out, or refuse a MIG slice's."""
    if uuid.startswith("MIG-"):
        what = f"{uuid} is a MIG slice: it has no clock or energy of its own"
        raise DeviceUnsupportedError(what, hint="use a whole GPU")
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
