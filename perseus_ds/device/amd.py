"""AMD GPUs through AMD's own library: the only importer of ``amdsmi``, and only inside functions.

Written against amdsmi 7.0 and its documentation, and never run on a real GPU: so ``device: automatic``
does not take it. A lock is an upper limit of the graphics clock, at which a busy GPU runs; it is removed by
performance level AUTO alone. The energy counter is wrong on some parts: compare it with integrated power.

Source: amdsmi 7.0.2, ``amdsmi_interface.py``; limits are megahertz, bare metal only.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import TypeVar

from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    DeviceRequest,
    EventReason,
    Identity,
    LibraryGpu,
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

# From amdsmi's status codes to our errors: the one table.

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


T = TypeVar("T")

_ONLY_BY_NAME = -1.0
_STEP_MHZ = 25  # assumed: the limit may be any megahertz
_COUNTER_PERIOD_S = 0.001  # assumed; calibration measures it
_SWITCH_LATENCY_S = 0.020  # assumed; calibration measures it
_MICRO = 1e-6
_LIBRARY = "install ROCm's amd-smi-lib, or use device: null"


def priority(request: DeviceRequest) -> float:
    """Only when asked for by name: nobody has checked it on a real GPU yet.

    Raises:
        DeviceError: no binding, no library, no driver, or no such GPU.
    """
    AmdGpu(request).close()
    return _ONLY_BY_NAME


class AmdGpu(LibraryGpu):
    """An AMD GPU. Setting its clock needs root, and the limit outlives this process."""

    def __init__(self, request: DeviceRequest) -> None:
        self._smi = load_amdsmi()
        self._what = f"AMD GPU {request.uuid or request.pci_bus_id or request.local_rank}"
        self._ask(self._smi.amdsmi_init, name="start amdsmi")
        self._open = True
        try:
            self._handle, index = self._find(request)
            self._identity = self._read_identity(index)
            self._capabilities = self._read_capabilities()
        except DeviceError:
            self.close()
            raise

    def lock_clock(self, clock_mhz: int) -> None:
        """Limit the graphics clock.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid, or this GPU takes no limit.
            ValueRefusedError: the driver lists this clock and refuses it.
            DevicePermissionError: not root.
        """
        self._lock(
            clock_mhz,
            lambda: self._smi.amdsmi_set_gpu_clk_limit(self._handle, "sclk", "max", clock_mhz),
            name=f"limit the clock to {clock_mhz} MHz",
        )

    def reset_clock(self) -> None:
        """Remove every limit, by performance level AUTO: there is no other way.

        Raises:
            DevicePermissionError: not root: the limit stays.
        """
        auto = self._smi.AmdSmiDevPerfLevel.AUTO
        self._ask(lambda: self._smi.amdsmi_set_gpu_perf_level(self._handle, auto), name="reset the clock")

    def achieved(self) -> Achieved:
        """Read graphics and memory clock, and whether power or heat hold them down."""
        kinds = self._smi.AmdSmiClkType
        clock_mhz, memory_mhz = (
            self._clock(kind, "clk", name="read clock") for kind in (kinds.GFX, kinds.MEM)
        )
        return Achieved(clock_mhz, memory_mhz, self._reasons())

    def standing_lock_mhz(self) -> int | None:
        """Read the upper limit of the graphics clock, where it is below the highest.

        Raises:
            DeviceUnsupportedError: this GPU takes no limit.
        """
        limits = self._ask(self._read_limits, name="read limits")
        now_mhz, high_mhz = (
            limits["curr_sclk_range"]["upper_bound"],
            limits["sclk_freq_limits"]["upper_bound"],
        )
        known = isinstance(now_mhz, int) and isinstance(high_mhz, int)
        return int(now_mhz) if known and int(now_mhz) < int(high_mhz) else None

    def energy_j(self) -> float:
        """Read the accumulator, whose unit the library shows (about 15.26 microjoules).

        Raises:
            DeviceUnsupportedError: the GPU has no accumulator.
        """
        return self._ask(self._count_j, name="read energy")

    def power_w(self) -> float | None:
        """Read the socket's power at this instant; ``None`` where the firmware does not state."""
        ask = getattr(self._smi, "amdsmi_get_power_info", None)
        told = self._optional(lambda: ask(self._handle)) if ask else None
        power_w = told.get("current_socket_power") if told else None
        return float(power_w) if isinstance(power_w, int | float) else None

    def temperature_c(self) -> float | None:
        """Read the hottest spot of the chip; ``None`` where the firmware does not state."""
        ask = getattr(self._smi, "amdsmi_get_temp_metric", None)
        told = self._optional(lambda: ask(self._handle, *self._hot_spot())) if ask else None
        return float(told) if isinstance(told, int | float) else None

    def _hot_spot(self) -> tuple[object, object]:
        return self._smi.AmdSmiTemperatureType.HOTSPOT, self._smi.AmdSmiTemperatureMetric.CURRENT

    def opened_elsewhere(self) -> tuple[str, str]:
        """Return AMD's backend and this UUID."""
        return "amdsmi", self._identity.uuid

    def busy(self) -> str | None:
        """Judge by the load of the graphics engine."""
        load_pct = self._optional(self._load_pct)
        return f"its load is {load_pct} %" if load_pct else None

    def _shut_down(self) -> None:
        self._smi.amdsmi_shut_down()

    def _find(self, request: DeviceRequest) -> tuple[object, int]:
        handles = self._ask(self._smi.amdsmi_get_processor_handles, name="list GPUs")
        for index, handle in enumerate(handles):
            if self._is(request, index, handle):
                return handle, index
        raise DeviceAbsentError(f"{self._what}: no such device among {len(handles)}", hint="amd-smi list")

    def _is(self, request: DeviceRequest, index: int, handle: object) -> bool:
        if request.uuid is not None:
            uuid = self._ask(lambda: self._smi.amdsmi_get_gpu_device_uuid(handle), name="identify")
            return bool(request.uuid.removeprefix("GPU-").lower() == str(uuid).removeprefix("GPU-").lower())
        if request.pci_bus_id is not None:
            bus = self._ask(lambda: self._smi.amdsmi_get_gpu_device_bdf(handle), name="identify")
            return bool(request.pci_bus_id.lower().endswith(str(bus).lower()))
        return index == request.local_rank

    def _read_identity(self, index: int) -> Identity:
        smi, handle = self._smi, self._handle
        return self._ask(
            lambda: Identity(
                name=str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
                uuid=str(smi.amdsmi_get_gpu_device_uuid(handle)),
                pci_bus_id=str(smi.amdsmi_get_gpu_device_bdf(handle)),
                driver=str(smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
                index=index,
            ),
            name="identify",
        )

    def _read_capabilities(self) -> Capabilities:
        clocks_mhz = self._optional(self._read_clocks_mhz) or ()
        counted = self._optional(self._count_j)
        why_not = None if os.geteuid() == 0 else missing_right()  # its driver's files are root's own
        if not clocks_mhz:
            why_not = f"{self._what} lists no limits of its clock"
        return Capabilities(
            clocks_mhz,
            (self._clock(self._smi.AmdSmiClkType.MEM, "max_clk", name="read clock"),),
            can_lock=why_not is None,
            why_not=why_not,
            counter_period_s=None if counted is None else _COUNTER_PERIOD_S,
            switch_latency_s=_SWITCH_LATENCY_S,
        )

    def _read_limits(self) -> Mapping[str, Mapping[str, int | str]]:
        limits: Mapping[str, Mapping[str, int | str]] = self._smi.amdsmi_get_gpu_od_volt_info(self._handle)
        return limits

    def _read_clocks_mhz(self) -> tuple[int, ...]:
        """A grid between the driver's limits, with the clock that an operator has set, if any."""
        limits = self._read_limits()["sclk_freq_limits"]
        low_mhz, high_mhz = limits["lower_bound"], limits["upper_bound"]
        if not (isinstance(low_mhz, int) and isinstance(high_mhz, int) and 0 < low_mhz < high_mhz):
            return ()
        standing_mhz = self.standing_lock_mhz() or high_mhz
        return tuple(sorted({*range(high_mhz, low_mhz - 1, -_STEP_MHZ), standing_mhz}, reverse=True))

    def _clock(self, kind: object, field: str, *, name: str) -> int:
        value = self._ask(lambda: self._smi.amdsmi_get_clock_info(self._handle, kind)[field], name=name)
        return value if isinstance(value, int) else 0  # "N/A" where the firmware does not say

    def _count_j(self) -> float:
        count = self._smi.amdsmi_get_energy_count(self._handle)
        return float(count["energy_accumulator"] * count["counter_resolution"]) * _MICRO

    def _load_pct(self) -> int:
        load = self._smi.amdsmi_get_gpu_activity(self._handle)["gfx_activity"]
        return load if isinstance(load, int) else 0

    def _reasons(self) -> EventReason:
        """Idle, and what the firmware names as violated (the MI300 series does), in NVML's words."""
        idle = EventReason.GPU_IDLE if self._optional(self._load_pct) == 0 else EventReason.NONE
        return idle | (self._optional(self._violated) or EventReason.NONE)

    def _violated(self) -> EventReason:
        seen, reasons = self._smi.amdsmi_get_violation_status(self._handle), EventReason.NONE
        if seen["active_ppt_pwr"] is True:
            reasons |= EventReason.SW_POWER_CAP
        if any(seen[key] is True for key in ("active_socket_thrm", "active_vr_thrm", "active_hbm_thrm")):
            reasons |= EventReason.SW_THERMAL
        if seen["active_prochot_thrm"] is True:
            reasons |= EventReason.HW_THERMAL
        return reasons

    def _ask(self, call: Callable[[], T], *, name: str) -> T:
        """Make one call of the library; its error becomes ours."""
        try:
            return call()
        except self._smi.AmdSmiLibraryException as error:
            raise translated(error.get_error_code(), f"{self._what}: {name}") from error


def load_amdsmi() -> ModuleType:
    """Import AMD's binding, which prints, and fails in its own ways, where its library is missing.

    Raises:
        DeviceUnavailableError: no binding, or no ``libamd_smi.so``.
    """
    if find_spec("amdsmi") is None:
        raise DeviceUnavailableError("no amdsmi here", hint='pip install "perseus_ds[amd]"')
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            import amdsmi  # noqa: PLC0415 - only when a GPU is asked for
    except (ImportError, OSError, KeyError, AttributeError) as error:
        reason = said.getvalue().splitlines() or [str(error)]
        raise DeviceUnavailableError(f"amdsmi does not load: {reason[0]}", hint=_LIBRARY) from error
    module: ModuleType = amdsmi
    return module
