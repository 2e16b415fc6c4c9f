"""The NVIDIA GPUs of this machine, looked at and never touched: for `doctor` and `clocks`."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from statistics import median
from typing import TypeVar

from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    DeviceRequest,
    Gpu,
    Identity,
    OperatorSettings,
    apparent_lock_mhz,
)
from perseus_ds.errors import DeviceError
from perseus_ds.guard.claim import any_error, retry
from perseus_ds.guard.command import count_gpus
from perseus_ds.guard.open import backends

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_CHECK_S, _PAUSE_S = 0.5, 0.005
_MIN_STEPS = 3  # of the counter: both ends and one between

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU: what it is and can do, and what it does just now (None where it does not state)."""

    identity: Identity
    capabilities: Capabilities
    achieved: Achieved | None
    energy_j: float | None
    power: OperatorSettings | None

    @property
    def standing_mhz(self) -> int | None:
        """The clock at which it appears to be locked; None where it does not."""
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

    def visible(self, environment: Mapping[str, str]) -> LocalGpus:
        """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, those that cannot be opened among them."""
        value = environment.get(VISIBLE_DEVICES)
        if value is None:
            return self
        uuids = {gpu.identity.index: gpu.identity.uuid for gpu in self.gpus}
        uuids |= {refused.index: "" for refused in self.refused if refused.index is not None}
        left = _left_by(value, [uuids[index] for index in sorted(uuids)])
        return LocalGpus(
            tuple(gpu for gpu in self.gpus if gpu.identity.index in left),
            tuple(refused for refused in self.refused if refused.index is None or refused.index in left),
        )


def local_gpus(*, patience_s: float = 0.0) -> LocalGpus:
    """Open one NVML index after the other, for reading; a driver that refuses is asked again for so long."""
    gpus: list[SeenGpu] = []
    refused: list[RefusedGpu] = []
    try:
        indices = range(retry(count_gpus, patience_s, any_error))
    except DeviceError as error:
        return LocalGpus((), (RefusedGpu(None, error.message, error.hint),))
    for index in indices:
        try:
            gpus.append(retry(partial(_look, index), patience_s, any_error))
        except DeviceError as error:
            refused.append(RefusedGpu(index, error.message, error.hint))
    return LocalGpus(tuple(gpus), tuple(refused))


def _open(index: int) -> Gpu:
    nvml = next(backend for backend in backends() if backend.name == "nvml")
    return nvml.open_gpu(DeviceRequest("nvml", local_rank=index, lock=False))


def _look(index: int) -> SeenGpu:
    with _open(index) as gpu:
        read = (_known(gpu.achieved), _known(gpu.energy_j), _known(gpu.operator_settings))
        return SeenGpu(gpu.identify(), gpu.capabilities(), *read)


def _known(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except DeviceError:
        return None


def torch_has_gpus() -> bool | None:
    """Return whether the installed torch is built for CUDA or HIP, by its ``version.py``; None: no torch."""
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


@dataclass(frozen=True, slots=True)
class QuickCheck:
    """Half a second of reads: the clock, the energy counter, the cost of a read; None where it shows nothing.

    ``counter_by_power`` is the energy counter over integrated power: above 1.25 it is a module's counter, and
    jobs integrate power instead. ``read_p50_ms`` and ``read_max_ms`` are what a read of the counter takes.
    ``scripts/bench/real_gpu`` checks more, under load.
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

    def check(index: int) -> QuickCheck:
        with _open(index) as gpu:
            return check_gpu(gpu)

    indices = [gpu.identity.index for gpu in gpus.gpus]
    with ThreadPoolExecutor(max(1, len(indices))) as pool:
        found = pool.map(lambda index: _known(partial(check, index)), indices)
        return {index: one for index, one in zip(indices, found, strict=True) if one is not None}


def check_gpu(gpu: Gpu) -> QuickCheck:
    """Read one GPU for half a second."""
    achieved = _known(gpu.achieved)
    reads_s: list[float] = []
    steps: list[tuple[float, float]] = []  # the counter, and power integrated until its step (J)
    spent_j, last = 0.0, None
    until_s = time.monotonic() + _CHECK_S
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
    counted = steps[1:]  # the first is no step: it is where the counter was
    ratio = None
    if len(counted) >= _MIN_STEPS and counted[-1][1] > counted[0][1]:
        ratio = (counted[-1][0] - counted[0][0]) / (counted[-1][1] - counted[0][1])
    times_ms = (1e3 * median(reads_s), 1e3 * max(reads_s)) if reads_s else (None, None)
    return QuickCheck(None if achieved is None else achieved.clock_mhz, ratio, *times_ms)
