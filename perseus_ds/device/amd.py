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
from functools import partial
from importlib.util import find_spec
from operator import methodcaller
from types import ModuleType

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

# Source: amdsmi.h 7.0, enum amdsmi_status_t.
_ERRORS: dict[type[DeviceError], tuple[int, ...]] = {
    ValueRefusedError: (1,),
    DeviceUnsupportedError: (2, 3, 14, 40, 52, 55),
    DevicePermissionError: (10,),
    DeviceLostError: (13, 54),
    DeviceUnavailableError: (18, 30, 31, 32, 34),
}
_HINTS: dict[type[DeviceError], str] = {DevicePermissionError: "run as root", DeviceLostError: "reboot it"}
_STEP_MHZ = 25  # assumed: the limit may be any megahertz
_COUNTER_PERIOD_S = 0.001  # assumed; calibration measures it
_SWITCH_LATENCY_S = 0.020  # assumed; calibration measures it


class AmdGpu(LibraryGpu):
    """An AMD GPU. Setting its clock needs root, and the limit outlives this process."""

    backend = "amdsmi"

    def __init__(self, request: DeviceRequest) -> None:
        self._smi = load_amdsmi()
        self._vendor_error = self._smi.AmdSmiLibraryException
        self._code_of = methodcaller("get_error_code")
        self._what = f"AMD GPU {request.uuid or request.pci_bus_id or request.local_rank}"
        with self._open_library(self._smi.amdsmi_init):
            index, self._handle = self._find(request)
            self._read_limits = partial(self._smi.amdsmi_get_gpu_od_volt_info, self._handle)
            self._identity = self._ask(lambda: self._read_identity(index), name="identify")
            self._capabilities = self._read_capabilities()

    def lock_clock(self, clock_mhz: int) -> None:
        self._lock(
            clock_mhz, lambda: self._smi.amdsmi_set_gpu_clk_limit(self._handle, "sclk", "max", clock_mhz)
        )

    def reset_clock(self) -> None:
        """Remove every limit, by performance level AUTO: there is no other way."""
        set_level, auto = self._smi.amdsmi_set_gpu_perf_level, self._smi.AmdSmiDevPerfLevel.AUTO
        self._ask(lambda: set_level(self._handle, auto), name="reset the clock")

    def achieved(self) -> Achieved:
        """Read the graphics clock, and what the firmware names as violated (the MI300 series does)."""
        clock_mhz = self._clock_mhz(self._smi.AmdSmiClkType.GFX, "clk")
        reasons = EventReason.GPU_IDLE if self.load_pct() == 0 else EventReason.NONE
        seen = self._optional(lambda: self._smi.amdsmi_get_violation_status(self._handle)) or {}
        if seen.get("active_ppt_pwr") is True:
            reasons |= EventReason.SW_POWER_CAP
        if any(seen.get(f"active_{part}_thrm") is True for part in ("socket", "vr", "hbm")):
            reasons |= EventReason.SW_THERMAL
        if seen.get("active_prochot_thrm") is True:
            reasons |= EventReason.HW_THERMAL
        return Achieved(clock_mhz, reasons)

    def standing_lock_mhz(self) -> int | None:
        """Read the upper limit of the graphics clock, where it is below the highest."""
        limits = self._ask(self._read_limits, name="read limits")
        now_mhz = _whole(limits["curr_sclk_range"]["upper_bound"])
        return now_mhz if 0 < now_mhz < _whole(limits["sclk_freq_limits"]["upper_bound"]) else None

    def energy_j(self) -> float:
        """Read the accumulator, whose unit the library shows (about 15.26 microjoules)."""
        return self._ask(self._count_j, name="read energy")

    def power_w(self) -> float | None:
        seen = self._optional(lambda: self._smi.amdsmi_get_power_info(self._handle)) or {}
        power_w = seen.get("current_socket_power")
        return float(power_w) if isinstance(power_w, int | float) else None

    def temperature_c(self) -> float | None:
        where = self._smi.AmdSmiTemperatureType.HOTSPOT, self._smi.AmdSmiTemperatureMetric.CURRENT
        found_c = self._optional(lambda: self._smi.amdsmi_get_temp_metric(self._handle, *where))
        return float(found_c) if isinstance(found_c, int | float) else None

    def load_pct(self) -> int | None:
        """Read the load of the graphics engine; one that is not stated ("N/A") counts as none."""
        seen = self._optional(lambda: self._smi.amdsmi_get_gpu_activity(self._handle))
        return None if seen is None else _whole(seen["gfx_activity"])

    def _find(self, request: DeviceRequest) -> tuple[int, object]:
        smi, handles = self._smi, self._ask(self._smi.amdsmi_get_processor_handles, name="list GPUs")

        def matches(index: int, handle: object) -> bool:
            if request.uuid is not None:
                uuid = str(smi.amdsmi_get_gpu_device_uuid(handle)).removeprefix("GPU-").lower()
                return uuid == request.uuid.removeprefix("GPU-").lower()
            if request.pci_bus_id is not None:
                return request.pci_bus_id.lower().endswith(str(smi.amdsmi_get_gpu_device_bdf(handle)).lower())
            return index == request.local_rank

        for one in enumerate(handles):
            if self._ask(partial(matches, *one), name="identify"):
                return one
        raise DeviceAbsentError(f"{self._what}: no such device among {len(handles)}", hint="amd-smi list")

    def _read_identity(self, index: int) -> Identity:
        smi, handle = self._smi, self._handle
        return Identity(
            name=str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
            uuid=str(smi.amdsmi_get_gpu_device_uuid(handle)),
            pci_bus_id=str(smi.amdsmi_get_gpu_device_bdf(handle)),
            driver=str(smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
            index=index,
        )

    def _read_capabilities(self) -> Capabilities:
        clocks_mhz = self._optional(self._clocks_mhz) or ()
        has_counter = self._optional(self._count_j) is not None
        why_not = missing_right() if os.geteuid() else None  # its driver's files are root's own
        why_not = why_not if clocks_mhz else f"{self._what} lists no limits of its clock"
        memory_mhz = self._clock_mhz(self._smi.AmdSmiClkType.MEM, "max_clk")
        period_s = _COUNTER_PERIOD_S if has_counter else None
        return Capabilities(clocks_mhz, (memory_mhz,), why_not is None, why_not, period_s, _SWITCH_LATENCY_S)

    def _clocks_mhz(self) -> tuple[int, ...]:
        """A grid between the driver's limits, with the clock that an operator has set, if any."""
        limits = self._read_limits()["sclk_freq_limits"]
        low_mhz, high_mhz = _whole(limits["lower_bound"]), _whole(limits["upper_bound"])
        if not 0 < low_mhz < high_mhz:
            return ()
        standing_mhz = self.standing_lock_mhz() or high_mhz
        return tuple(sorted({*range(high_mhz, low_mhz - 1, -_STEP_MHZ), standing_mhz}, reverse=True))

    def _clock_mhz(self, kind: object, field: str) -> int:
        seen = self._ask(lambda: self._smi.amdsmi_get_clock_info(self._handle, kind), name="read clock")
        return _whole(seen[field])

    def _count_j(self) -> float:
        count = self._smi.amdsmi_get_energy_count(self._handle)
        return 1e-6 * float(count["energy_accumulator"] * count["counter_resolution"])

    def _error_of(self, code: int, what: str) -> DeviceError:
        kind = next((kind for kind, codes in _ERRORS.items() if code in codes), DeviceError)
        return kind(f"{what}: refused (amdsmi error {code})", hint=_HINTS.get(kind))

    def _shut_down(self) -> None:
        self._smi.amdsmi_shut_down()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0  # "N/A" where the firmware does not say


def load_amdsmi() -> ModuleType:
    """Import AMD's binding, which prints, and fails in its own ways, where its library is missing."""
    if find_spec("amdsmi") is None:
        raise DeviceUnavailableError("no amdsmi here", hint='pip install "perseus_ds[amd]"')
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            import amdsmi  # noqa: PLC0415 - only when a GPU is asked for
    except (ImportError, OSError, KeyError, AttributeError) as error:
        reason = said.getvalue().splitlines() or [str(error)]
        raise DeviceUnavailableError(
            f"amdsmi does not load: {reason[0]}", hint="install ROCm's amd-smi-lib"
        ) from error
    module: ModuleType = amdsmi
    return module
