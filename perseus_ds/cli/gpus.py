"""The NVIDIA GPUs of this machine, looked at and never touched."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from statistics import median

from perseus_ds.cli.job_config import Finding
from perseus_ds.device.gpu import (
    Achieved,
    Backend,
    Capabilities,
    DeviceRequest,
    Gpu,
    Identity,
    OperatorSettings,
    apparent_lock_mhz,
)
from perseus_ds.device.nvml import load_nvml, translated
from perseus_ds.errors import DeviceError
from perseus_ds.guard.claim import insist, whatever
from perseus_ds.guard.open import backends


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU: what it is and can do, and what it does just now (None where it does not state)."""

    identity: Identity
    capabilities: Capabilities
    achieved: Achieved | None
    energy_j: float | None
    power: OperatorSettings | None

    @property
    def standing_mhz(self) -> int | None:
        """The clock at which it stands as if somebody had locked it; None where it does not."""
        return None if self.achieved is None else apparent_lock_mhz((self.achieved,), self.capabilities)


@dataclass(frozen=True, slots=True)
class RefusedGpu:
    """A GPU that cannot be opened, or NVML itself (``index`` None): why, and what to do."""

    index: int | None
    what: str
    remedy: str | None

    def __str__(self) -> str:
        return self.what if self.remedy is None else f"{self.what} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """GPUs that NVML lists: those that can be used, and those that cannot."""

    gpus: tuple[SeenGpu, ...]
    refused: tuple[RefusedGpu, ...]

    @property
    def known(self) -> frozenset[int]:
        """The indices of all of them."""
        lost = (one.index for one in self.refused if one.index is not None)
        return frozenset([*(gpu.identity.index for gpu in self.gpus), *lost])


def local_gpus(*, patience_s: float = 0.0) -> LocalGpus:
    """Open one NVML index after the other, for reading; a driver that refuses is asked again for so long."""
    nvml = next(backend for backend in backends() if backend.name == "nvml")
    gpus: list[SeenGpu] = []
    refused: list[RefusedGpu] = []
    try:
        indices = range(insist(_count, for_s=patience_s, passes=whatever))
    except DeviceError as error:
        return LocalGpus((), (RefusedGpu(None, error.message, error.hint),))
    for index in indices:
        try:
            gpus.append(insist(partial(_look, nvml, index), for_s=patience_s, passes=whatever))
        except DeviceError as error:
            refused.append(RefusedGpu(index, error.message, error.hint))
    return LocalGpus(tuple(gpus), tuple(refused))


def _count() -> int:
    """Ask NVML how many GPUs there are.

    Raises:
        DeviceError: no NVML, no driver.
    """
    nvml = load_nvml()
    try:
        nvml.nvmlInit()
        try:
            return int(nvml.nvmlDeviceGetCount())
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise translated(int(error.value), "count GPUs") from error


def _look(nvml: Backend, index: int) -> SeenGpu:
    with nvml.open_gpu(DeviceRequest("nvml", local_rank=index, lock=False)) as gpu:
        return SeenGpu(gpu.identify(), gpu.capabilities(), _achieved(gpu), _energy_j(gpu), _power(gpu))


def _achieved(gpu: Gpu) -> Achieved | None:
    try:
        return gpu.achieved()
    except DeviceError:
        return None


def _energy_j(gpu: Gpu) -> float | None:
    try:
        return gpu.energy_j()
    except DeviceError:
        return None


def _power(gpu: Gpu) -> OperatorSettings | None:
    try:
        return gpu.operator_settings()
    except DeviceError:
        return None


# Which of this machine's GPUs a training job of this Python would compute on; torch is not imported.

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"
_SLICE = "MIG-"


def visible_gpus(found: LocalGpus, environment: Mapping[str, str]) -> LocalGpus:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, those that cannot be opened among them."""
    value = environment.get(VISIBLE_DEVICES)
    if value is None:
        return found
    uuids = {gpu.identity.index: gpu.identity.uuid for gpu in found.gpus}
    uuids |= {refused.index: "" for refused in found.refused if refused.index is not None}
    left = _left_by(value, [uuids[index] for index in sorted(uuids)])
    return LocalGpus(
        tuple(gpu for gpu in found.gpus if gpu.identity.index in left),
        tuple(refused for refused in found.refused if refused.index is None or refused.index in left),
    )


def findings_of_visibility(found: LocalGpus, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Return why jobs would train on the CPU, or on other GPUs than the numbers here suggest."""
    if torch_has_gpus() is False:
        yield Finding(
            "this Python's torch is built without CUDA: jobs train on the CPU, and no clock is set",
            "install a build of torch with CUDA (pytorch.org/get-started)",
        )
    value, visible = environment.get(VISIBLE_DEVICES), visible_gpus(found, environment)
    if value is None or not found.known:
        return
    if value.startswith(_SLICE):
        yield Finding(
            f"{VISIBLE_DEVICES}={value} names MIG slices, which have no clock or energy of their own",
            "name whole GPUs",
        )
    elif not visible.known:
        yield Finding(
            f"{VISIBLE_DEVICES}={value} leaves no GPU: jobs train on the CPU, and no clock is set",
            f"unset {VISIBLE_DEVICES}, or name GPUs that are here",
        )
    elif (
        not value.startswith("GPU-")
        and len({gpu.identity.name for gpu in found.gpus}) > 1
        and visible.known < found.known
        and environment.get(_ORDER) != _BY_BUS
    ):
        yield Finding(
            f"{VISIBLE_DEVICES}={value} counts GPUs of several models with the fastest first,"
            " maybe not as here",
            f"{_ORDER}={_BY_BUS}, or name them by UUID",
        )


def torch_has_gpus() -> bool | None:
    """Whether the installed torch is built for CUDA or HIP, by its ``version.py``; None where none tells."""
    spec = PathFinder.find_spec("torch")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        try:
            tree = ast.parse(Path(folder, "version.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        values = dict(_assigned(tree))
        if "cuda" in values:
            return bool(values["cuda"] or values.get("hip"))
    return None


def _assigned(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(value, ast.Constant):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))


def _left_by(value: str, uuids: Sequence[str]) -> list[int]:
    """Read the variable as torch does: the first wrong entry ends the list, a repeated one empties it.

    Source: ``_parse_visible_devices``, ``_transform_uuid_to_ordinals`` of torch/cuda/__init__.py@2.13.
    """
    by_uuid = value.startswith("GPU-")
    left: list[int] = []
    for entry in value.split(","):
        if by_uuid:
            matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
            index = matches[0] if entry.startswith("GPU-") and len(matches) == 1 else -1
        else:
            digits = re.match(r"[+-]?\d+", entry.strip())
            index = int(digits[0]) if digits else -1
        if index in left:
            return []
        if not 0 <= index < len(uuids):
            break
        left.append(index)
    return left


# Three quick checks of a real GPU, by reads alone: its clock, its energy counter, and what reads cost.
#
# They take half a second at whatever load there is. ``scripts/bench/real_gpu`` checks more, under load.

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
