"""NVIDIA GPUs through NVML: the only importer of pynvml, and only inside functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TypeVar

from perseus_ds.device.library_gpu import LibraryGpu
from perseus_ds.device.nvidia.nvml_errors import translated
from perseus_ds.device.nvidia.nvml_optional import (
    SIGNS_OF_WORK,
    chip_temperature_c,
    instant_power_w,
    why_no_memory_clock,
)
from perseus_ds.device.nvidia.nvml_power import ceiling_mhz, operator_settings
from perseus_ds.device.operator_settings import OperatorSettings
from perseus_ds.device.record import Achieved, Capabilities, EventReason, Identity
from perseus_ds.device.request import DeviceRequest
from perseus_ds.device.rights import missing_right
from perseus_ds.errors import DeviceError, DeviceUnavailableError, DeviceUnsupportedError

T = TypeVar("T")

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
    """One NVIDIA GPU. Locking needs root or CAP_SYS_ADMIN, and the lock outlives this process."""

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
        """By NVML, as here."""
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
