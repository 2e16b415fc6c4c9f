"""Three quick checks of a real GPU, by reads alone: its clock, its energy counter, and what reads cost.

They take half a second at whatever load there is. ``scripts/bench/real_gpu`` checks more, under load.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from perseus_ds.cli.machine.local_gpus import LocalGpus
from perseus_ds.device import DeviceRequest, Gpu
from perseus_ds.device.choose import backends
from perseus_ds.errors import DeviceError

_FOR_S = 0.5
_PAUSE_S = 0.005
_LEAST_STEPS = 3  # of the counter: both ends and one between


@dataclass(frozen=True, slots=True)
class QuickCheck:
    """What the reads of half a second showed; None for what the GPU does not show.

    ``counter_by_power`` is the energy counter over integrated power: above 1.25 it is a module's counter, and
    jobs integrate power instead. ``read_p50_ms`` and ``read_max_ms`` are what a read of the counter takes.
    """

    clock_mhz: int | None
    counter_by_power: float | None
    read_p50_ms: float | None
    read_max_ms: float | None

    @property
    def line(self) -> str:
        """The check in words."""
        clock = (
            "clock cannot be read" if self.clock_mhz is None else f"clock {self.clock_mhz} MHz is readable"
        )
        ratio = "cannot be compared" if self.counter_by_power is None else f"{self.counter_by_power:.2f}"
        reads = "no reads" if self.read_p50_ms is None else f"{self.read_p50_ms:.2f} ms"
        most = "" if self.read_max_ms is None else f", {self.read_max_ms:.2f} ms at most"
        return f"{clock}; counter by power {ratio}; a read of the counter takes {reads}{most}"


def quick_checks(gpus: LocalGpus) -> Mapping[int, QuickCheck]:
    """Check all GPUs at once; those that a driver refuses meanwhile are left out."""
    indices = [gpu.identity.index for gpu in gpus.gpus]
    if not indices:
        return {}
    with ThreadPoolExecutor(len(indices)) as pool:
        found = zip(indices, pool.map(_check, indices), strict=True)
        return {index: check for index, check in found if check is not None}


def _check(index: int) -> QuickCheck | None:
    nvml = next(backend for backend in backends() if backend.name == "nvml")
    try:
        with nvml.open_gpu(DeviceRequest("nvml", local_rank=index, lock=False)) as gpu:
            return check_gpu(gpu)
    except DeviceError:
        return None


def check_gpu(gpu: Gpu) -> QuickCheck:
    """Read one GPU for half a second."""
    try:
        clock_mhz = gpu.achieved().clock_mhz
    except DeviceError:
        clock_mhz = None
    reads_s: list[float] = []
    steps: list[tuple[float, float]] = []  # the counter, and power integrated until its step (J)
    spent_j, last = 0.0, None
    until_s = time.monotonic() + _FOR_S
    try:
        while time.monotonic() < until_s:
            power_w, begun_s = gpu.power_w(), time.monotonic()
            energy_j, ended_s = gpu.energy_j(), time.monotonic()
            reads_s.append(ended_s - begun_s)
            if last is not None and power_w is not None:
                spent_j += 0.5 * (power_w + last[1]) * (begun_s - last[0])
            if not steps or energy_j != steps[-1][0]:
                steps.append((energy_j, spent_j))
            last = None if power_w is None else (begun_s, power_w)
            time.sleep(_PAUSE_S)
    except DeviceError:
        steps.clear()
    counted = steps[1:]  # the first is no step: it is where the counter stood
    ratio = None
    if len(counted) >= _LEAST_STEPS and counted[-1][1] > counted[0][1]:
        ratio = (counted[-1][0] - counted[0][0]) / (counted[-1][1] - counted[0][1])
    return QuickCheck(
        clock_mhz,
        ratio,
        1e3 * median(reads_s) if reads_s else None,
        1e3 * max(reads_s) if reads_s else None,
    )
