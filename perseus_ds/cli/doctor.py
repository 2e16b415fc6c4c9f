"""Check before a job starts what would keep it from training with the plugin."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from perseus_ds.cli.job_config import Finding, hook_status, read_block_file, read_job_config
from perseus_ds.cli.output import DONE, REFUSED, print_result
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig
from perseus_ds.device.clock_change import Calibration, calibrate_together
from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    DeviceRequest,
    Gpu,
    Identity,
    OperatorSettings,
    apparent_lock_mhz,
    missing_right,
)
from perseus_ds.errors import DeviceError, DeviceUnavailableError, PerseusError
from perseus_ds.guard import containment
from perseus_ds.guard.command import count_gpus
from perseus_ds.guard.journal import BACKENDS
from perseus_ds.guard.open import backends, choose
from perseus_ds.guard.repair import is_held, stale_journals
from perseus_ds.runtime.reach import VARIABLE, reach_of

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_BUS_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
_CHECK_S, _PAUSE_S = 0.5, 0.005
_MIN_STEPS = 3  # of the counter: both ends and one between

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds doctor``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a DeepSpeed JSON to check as well")
    parser.add_argument(
        "--calibrate", action="store_true", help="set clocks of free GPUs for a second each, to time them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Look, print."""
    found = Diagnosis(options.config, calibrate=options.calibrate)
    print_result(json.dumps(found.as_json(), indent=1) if options.json else "\n".join(found.lines()))
    nothing_timed = found.timed is not None and all(isinstance(one, str) for one in found.timed.values())
    return REFUSED if found.config_refused or nothing_timed else DONE


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU: what it is and can do, and what it does just now (None where it does not state)."""

    identity: Identity
    capabilities: Capabilities
    achieved: Achieved | None
    energy_j: float | None
    power: OperatorSettings | None

    @property
    def index(self) -> int:
        """The index that NVML gives it."""
        return self.identity.index

    @property
    def name(self) -> str:
        """Index and model, as findings name it."""
        return f"GPU {self.index} ({self.identity.name})"

    @property
    def apparent_lock_mhz(self) -> int | None:
        """The clock at which it appears to be locked; None where it does not, or a job holds it."""
        if self.achieved is None or is_held(self.identity.uuid):
            return None
        return apparent_lock_mhz((self.achieved,), self.capabilities)

    def troubles(self, backend: str, *, lock: bool) -> Iterator[tuple[str, str]]:
        """Return what it lacks or suffers from, each with its remedy."""
        able = self.capabilities
        if len(able.clocks_mhz) <= 1:
            yield "its driver lists no choice of clocks: none can be set", "use a GPU whose driver does"
        elif lock and not able.can_lock and backend == "nvml":
            yield (
                f"clocks can be read and not set: {able.why_not}",
                "give CAP_SYS_ADMIN on the node, or run perseus-ds guardd there",
            )
        if able.counter_period_s is None:
            yield "no energy counter: nothing can be measured", "use a Volta or newer"
        if self.achieved is not None and self.achieved.event_reasons.spoils:
            yield f"throttled just now: {self.achieved.event_reasons.name}", "see its power cap and cooling"

    def lines(self) -> Iterator[str]:
        """Describe it in words."""
        who, able = self.identity, self.capabilities
        yield f"gpu {who.index:<4} {who.name}, {who.uuid}, {who.pci_bus_id}, driver {who.driver}"
        yield f"         clocks {able.grid}; lock: {'yes' if able.can_lock else able.why_not}"
        memory = f"cannot be locked: {able.memory_why_not}" if able.memory_why_not else "can be locked"
        yield f"         memory clock {memory}"
        counter = "none" if able.counter_period_s is None else f"every {1e3 * able.counter_period_s:.0f} ms"
        yield f"         energy counter {counter}; a clock change takes {1e3 * able.switch_latency_s:.0f} ms"
        if self.power is not None and (fields := self.power.fields()):
            stated = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in fields.items())
            yield f"         set by operators: {stated}"
        if self.achieved is not None:
            reasons = (self.achieved.event_reasons.name or "none").lower().replace("|", ", ")
            yield f"         now at {self.achieved.clock_mhz} MHz, reasons: {reasons}"


class Diagnosis:
    """Everything that is looked at; nothing is set, unless clock changes must be timed.

    ``gpus`` are those that can be opened, ``refused`` why another cannot, by its index in NVML (None: NVML
    itself). ``device`` is the backend that the job would take, ``chosen`` the one that ``automatic`` takes.
    ``timed`` holds the calibration of each GPU or why there is none. ``config_refused``: training would
    refuse the job's own file.
    """

    def __init__(self, config: Path | None, *, calibrate: bool = False) -> None:
        self.hook = hook_status()
        self.gpus, self.refused = local_gpus()
        known = sorted(
            {gpu.index for gpu in self.gpus} | {index for index in self.refused if index is not None}
        )
        self.visible = visible_gpus(known, {gpu.index: gpu.identity.uuid for gpu in self.gpus})
        self.used = [gpu for gpu in self.gpus if gpu.index in self.visible]
        self.cpu_only = torch_has_gpus() is False
        job, of_config = self._read_config(config)
        setting = "automatic" if job is None else job.device
        self.lock = job is None or job.mode not in {"observe", "off"}
        self.backends = list(self._probe_backends())
        best = next(one for one in self.backends if one["automatic"] and not one["refusal"])
        self.chosen, self.reason = best["name"], best["summary"]
        hidden = list(self._hidden(known))
        self.findings = [*self._of_job(setting, known)]
        if setting not in {"simulated", "null"}:
            self.findings += [*hidden, *self._of_node()]
        if self.cpu_only or (known and not self.visible):
            self.chosen, self.reason = "null", hidden[0].what
        reach = reach_of(os.environ.get("MASTER_ADDR", ""))
        if os.environ.get(VARIABLE) and not reach.interface:
            self.findings.append(Finding(reach.why, f"name one of them in {VARIABLE}, or unset it"))
        self.findings += of_config
        self.device = self.chosen if setting == "automatic" else setting
        named = bool(config or os.environ.get(ENABLED_BY_FILE))
        self.config_refused = (named and job is None) or any(one.refused for one in of_config)
        self.checks = quick_checks([gpu.index for gpu in self.gpus])
        self.timed = calibrate_gpus(self.used, best["name"]) if calibrate else None

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        devices = []
        for gpu in self.gpus:
            content = asdict(gpu)
            if gpu.achieved is not None:
                content["achieved"]["event_reasons"] = int(gpu.achieved.event_reasons)
            check = self.checks.get(gpu.index)
            content |= {"visible": gpu.index in self.visible, "checks": check and asdict(check)}
            devices.append(content)
        timed = [
            {"index": index, "calibration": None, "refusal": one}
            if isinstance(one, str)
            else {"index": index, "calibration": asdict(one), "refusal": ""}
            for index, one in sorted((self.timed or {}).items())
        ]
        return {
            "hook": {"armed": self.hook.armed} | asdict(self.hook),
            "missing_right": missing_right(),
            "devices": devices,
            "devices_refused": list(map(str, self.refused.values())),
            "backends": self.backends,
            "device": self.device,
            "automatic": {"backend": self.chosen, "reason": self.reason},
            "findings": [asdict(finding) for finding in self.findings],
            "calibration": None if self.timed is None else timed,
        }

    def lines(self) -> Iterator[str]:
        """Lay the diagnosis out, one topic per block, the trouble last."""
        hook, variable = self.hook, os.environ.get(VISIBLE_DEVICES)
        yield f"hook     {'armed' if hook.armed else 'not armed'} ({hook.entry_point or 'no entry point'})"
        yield f"         {hook.python}"
        yield f"         torch {hook.torch_version or 'none'}, deepspeed {hook.deepspeed_version or 'none'}"
        yield f"rights   {missing_right() or 'may set clocks'}"
        for gpu in self.gpus:
            yield from gpu.lines()
            if (check := self.checks.get(gpu.index)) is not None:
                yield f"         {check}"
            if variable is not None:
                left = "left" if gpu.index in self.visible else "hidden"
                yield f"         {left} by {VISIBLE_DEVICES}={variable}"
            if self.timed is not None and gpu.index in self.timed:
                yield from (f"         {line}" for line in _timing_lines(self.timed[gpu.index]))
        yield from (f"gpu      {refusal}" for refusal in self.refused.values())
        yield ""
        automatic = f"device: automatic takes {self.chosen}, {self.reason}"
        yield automatic if self.chosen == self.device else f"device: {self.device}, as the configuration asks"
        for one in self.backends:
            state = "taken" if one["name"] == self.device else "possible"
            if one["refusal"]:
                state = f"no: {one['refusal']}"
            elif not one["automatic"] and one["name"] != self.device:
                state = "only when asked for by name"
            yield f"  {one['name']:<10} {state}"
        yield ""
        yield (
            "what would go wrong in training"
            if self.findings
            else "nothing stands in the way of training with the plugin"
        )
        for finding in self.findings:
            yield from (f"  - {finding.what}", f"    do: {finding.remedy}")

    def _read_config(self, config: Path | None) -> tuple[PerseusConfig | None, list[Finding]]:
        """Read the job's files; no block: it was refused, does not ask for the plugin, or none is named."""
        file = os.environ.get(ENABLED_BY_FILE)
        try:
            if config is None:
                return (read_block_file(file, os.environ) if file else None), []
            job = read_job_config(config, os.environ, deepspeed_version=self.hook.deepspeed_version)
        except PerseusError as error:
            return None, [Finding(error.message, error.hint or "correct the file")]
        findings = list(job.findings)
        if job.perseus is None:
            off = Finding(f"{config} does not ask for the plugin", 'add "perseus": {"enabled": true}')
            findings.insert(0, off)
        return job.perseus, findings

    def _probe_backends(self) -> Iterator[dict[str, Any]]:
        """Ask every backend as a training job would, for every GPU that it would use."""
        indices = [gpu.index for gpu in self.used] or sorted(self.visible) or [0]
        for backend in backends():
            refusals: dict[str, None] = {}
            for index in indices:
                try:
                    backend.check(DeviceRequest("automatic", local_rank=index, lock=self.lock))
                except DeviceError as error:
                    refusals[str(error)] = None
            stated = {"name": backend.name, "summary": backend.summary, "automatic": backend.automatic}
            yield {**stated, "refusal": "; ".join(refusals)}

    def _hidden(self, known: Sequence[int]) -> Iterator[Finding]:
        """Return why jobs would train on the CPU, or on other GPUs than the numbers here suggest."""
        if self.cpu_only:
            yield Finding(
                "this Python's torch is built without CUDA: jobs train on the CPU, and no clock is set",
                "install a build of torch with CUDA (pytorch.org/get-started)",
            )
        value = os.environ.get(VISIBLE_DEVICES)
        if value is None or not known:
            return
        if value.startswith("MIG-"):
            yield Finding(
                f"{VISIBLE_DEVICES}={value} names MIG slices, which have no clock or energy of their own",
                "name whole GPUs",
            )
        elif not self.visible:
            yield Finding(
                f"{VISIBLE_DEVICES}={value} leaves no GPU: jobs train on the CPU, and no clock is set",
                f"unset {VISIBLE_DEVICES}, or name GPUs that are here",
            )
        elif (
            not value.startswith("GPU-")
            and len({gpu.identity.name for gpu in self.gpus}) > 1
            and len(self.visible) < len(known)
            and os.environ.get(_BUS_ORDER[0]) != _BUS_ORDER[1]
        ):
            yield Finding(
                f"{VISIBLE_DEVICES}={value} counts GPUs of several models with the fastest first,"
                " maybe not as here",
                f"{'='.join(_BUS_ORDER)}, or name them by UUID",
            )

    def _of_job(self, setting: str, known: Sequence[int]) -> Iterator[Finding]:
        """Return why jobs would not load the plugin, and what the device that they ask for cannot do here."""
        if not self.hook.armed:
            yield Finding(f"jobs of this Python do not load the plugin: {self.hook.reason}", self.hook.remedy)
        if setting == "automatic" and self.chosen == "null" and not known:
            why = "".join(f" ({refusal})" for refusal in self.refused.values())
            yield Finding(
                f"no GPU that we know: jobs run at default clocks and save nothing{why}",
                "device: simulated tries everything out without a GPU",
            )
        if setting == "simulated":
            yield Finding(
                "device is simulated: what the job saves is simulated, and no GPU's clock is set",
                "device: automatic, where GPUs train",
            )
        if setting == "null":
            yield Finding("device is null: the job saves nothing", "device: automatic")
        for one in self.backends:
            if one["name"] == setting and one["refusal"]:
                yield Finding(f"device: {setting} cannot work here: {one['refusal']}", "device: automatic")

    def _of_node(self) -> Iterator[Finding]:
        """Return what the GPUs lack or suffer from, and what could leave their clocks locked."""
        if self.lock and self.visible:
            yield from _find_unguarded(self.chosen)
        for index, refusal in self.refused.items():
            if index in self.visible:
                remedy = refusal.hint or "leave it out of jobs"
                yield Finding(f"GPU {index} cannot be used: {refusal.message}", remedy)
        found: dict[tuple[str, str], list[SeenGpu]] = {}
        for gpu in self.used:
            for trouble in gpu.troubles(self.chosen, lock=self.lock):
                found.setdefault(trouble, []).append(gpu)
        for (what, remedy), gpus in found.items():
            numbers = ", ".join(str(gpu.index) for gpu in gpus)
            names = ", ".join(dict.fromkeys(gpu.identity.name for gpu in gpus))
            yield Finding(f"GPU{'s' * (len(gpus) > 1)} {numbers} ({names}): {what}", remedy)
        yield from self._locks()
        for gpu in self.used:
            if unusual := "; ".join(() if gpu.power is None else gpu.power.unusual()):
                yield Finding(
                    f"{gpu.name} has {unusual}: a profile serves only jobs under the same setting",
                    "leave it, if an operator, DCGM or the site means it; otherwise nvidia-smi -pl, -rac",
                )

    def _locks(self) -> Iterator[Finding]:
        """Return which clocks appear locked though no job of ours that lives holds them."""
        left: dict[str, str] = {}
        try:
            left = stale_journals()
        except DeviceError as error:
            yield Finding(error.message, error.hint or "perseus-ds clocks reset")
        for uuid, what in left.items():
            yield Finding(f"{uuid} may still be locked: {what}", "perseus-ds clocks reset")
        for gpu in self.used:
            if gpu.identity.uuid not in left and (clock_mhz := gpu.apparent_lock_mhz) is not None:
                yield Finding(
                    f"{gpu.name} stands at {clock_mhz} MHz as if locked: a job gives it default clocks,"
                    " also at its end",
                    "restore_clock_mhz, if it is meant, else perseus-ds clocks reset --all",
                )


def _find_unguarded(backend: str) -> Iterator[Finding]:
    """Return what would leave clocks locked, should the job be killed with its guards."""
    why_not, why = containment.why_unguarded(), containment.why_killed_together()
    if why_not is not None and backend not in {"guardd", "null"}:
        yield Finding(f"no clock is set here: {why_not}", containment.REMEDY)
    if why is not None and backend in BACKENDS:
        yield Finding(
            f"who kills a job's whole control group (systemd, oomd) leaves its clocks locked: {why}",
            "run perseus-ds guardd on the node, or perseus-ds clocks reset after such a kill",
        )


def local_gpus() -> tuple[list[SeenGpu], dict[int | None, DeviceError]]:
    """Open every GPU of NVML for reading; return those that can be, and the refusals of the others."""
    gpus: list[SeenGpu] = []
    refused: dict[int | None, DeviceError] = {}
    try:
        number = count_gpus()
    except DeviceError as error:
        return [], {None: error}
    for index in range(number):
        try:
            with _open(index) as gpu:
                read = (_try_read(gpu.achieved), _try_read(gpu.energy_j), _try_read(gpu.operator_settings))
                gpus.append(SeenGpu(gpu.identify(), gpu.capabilities(), *read))
        except DeviceError as error:
            refused[index] = error
    return gpus, refused


def _open(index: int) -> Gpu:
    nvml = next(backend for backend in backends() if backend.name == "nvml")
    return nvml.open_gpu(DeviceRequest("nvml", local_rank=index, lock=False))


def _try_read(read: Callable[[], T]) -> T | None:
    with suppress(DeviceError):
        return read()
    return None


def torch_has_gpus() -> bool | None:
    """Return whether the installed torch is built for CUDA or HIP, by its ``version.py``; None: no torch."""
    spec = PathFinder.find_spec("torch")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        with suppress(OSError, ValueError):
            text = Path(folder, "version.py").read_text(encoding="utf-8")
            built = dict(re.findall(r"^(cuda|hip)\b[^=\n]*=\s*(\S+)", text, re.MULTILINE))
            if "cuda" in built:
                return set(built.values()) != {"None"}
    return None


def visible_gpus(known: Sequence[int], uuids: Mapping[int, str]) -> set[int]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, those that cannot be opened among them.

    It is read as torch reads it: the first wrong entry ends the list, a repeated one empties it.

    Source: ``_parse_visible_devices``, ``_transform_uuid_to_ordinals`` of torch/cuda/__init__.py@2.13.
    """
    value = os.environ.get(VISIBLE_DEVICES)
    if value is None:
        return set(known)
    by_uuid, left = value.startswith("GPU-"), set[int]()
    for entry in value.split(","):
        if by_uuid:
            matches = [index for index in known if uuids.get(index, "").startswith(entry)]
            index = matches[0] if entry.startswith("GPU-") and len(matches) == 1 else -1
        else:
            digits = re.match(r"[+-]?\d+", entry.strip())
            index = int(digits[0]) if digits else -1
        if index in left:
            return set()
        if index not in known:
            break
        left.add(index)
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

    def __str__(self) -> str:
        clock = "cannot be read" if self.clock_mhz is None else f"{self.clock_mhz} MHz is readable"
        ratio = "cannot be compared" if self.counter_by_power is None else f"{self.counter_by_power:.2f}"
        reads = "no reads" if self.read_p50_ms is None else f"{self.read_p50_ms:.2f} ms"
        most = "" if self.read_max_ms is None else f", {self.read_max_ms:.2f} ms at most"
        return f"clock {clock}; counter by power {ratio}; a read of the counter takes {reads}{most}"


def quick_checks(indices: Sequence[int]) -> dict[int, QuickCheck]:
    """Check all GPUs at once; those that a driver refuses meanwhile are left out."""

    def check(index: int) -> QuickCheck:
        with _open(index) as gpu:
            return check_gpu(gpu)

    with ThreadPoolExecutor(max(1, len(indices))) as pool:
        found = pool.map(lambda index: _try_read(partial(check, index)), indices)
        return {index: one for index, one in zip(indices, found, strict=True) if one is not None}


def check_gpu(gpu: Gpu) -> QuickCheck:
    """Read one GPU for half a second."""
    achieved = _try_read(gpu.achieved)
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


def calibrate_gpus(gpus: Sequence[SeenGpu], backend: str) -> dict[int, Calibration | str]:
    """Time the clock changes of the GPUs that nobody holds and nobody works on, alone and all at once.

    ``backend`` is the one that jobs would set clocks through. The clocks are set by a guard that has taken
    the GPU's lease, as in training. So a running job of ours is refused with its name, and the
    clocks are put back whatever happens to this command. Returns why there is no calibration in its place.
    """
    timed: dict[int, Calibration | str] = {}
    with ExitStack() as leases:
        taken: dict[int, Gpu] = {}
        for seen in gpus:
            if (clock_mhz := seen.apparent_lock_mhz) is not None:
                timed[seen.index] = (
                    f"GPU {seen.index} looks locked at {clock_mhz} MHz, which measuring would remove"
                )
                continue
            try:
                taken[seen.index] = leases.enter_context(_take(seen.index, backend))
            except DeviceError as error:
                timed[seen.index] = str(error)
        for index, answer in zip(taken, calibrate_together(list(taken.values())), strict=True):
            timed[index] = str(answer) if isinstance(answer, DeviceError) else answer
    return timed


def _timing_lines(found: Calibration | str) -> Iterator[str]:
    if isinstance(found, str):
        yield f"not measured: {found}"
        return
    if found.idle:
        yield "not measured: it is idle and clocks down by itself; a job measures as it starts"
    elif found.unreached:
        yield f"{found.unreached} clocks were not reached: throttled, or set by somebody else"
    call, up, down, together, period = (
        "unknown" if one_s is None else f"{1e3 * one_s:.3g} ms"
        for one_s in (found.call_s, found.up_s, found.down_s, found.together_s, found.counter_period_s)
    )
    times = f"call {call}, up {up}, down {down}, all GPUs at once {together}"
    yield f"measured: {times}; counter every {period}"


def _take(index: int, backend: str) -> Gpu:
    """Take a GPU as a training job would, after seeing that nobody works on it, and before trusting that."""
    with choose(DeviceRequest("nvml", local_rank=index, lock=False)).gpu as reader:
        busy = reader.busy()
    if busy is not None:
        raise DeviceUnavailableError(f"GPU {index} is in use: {busy}")
    gpu = choose(DeviceRequest(backend, local_rank=index)).gpu
    try:
        why_not, busy = gpu.capabilities().why_not, gpu.busy()
        if why_not is not None or busy is not None:
            raise DeviceUnavailableError(why_not or f"GPU {index} is in use: {busy}")
    except DeviceError:
        gpu.close()
        raise
    return gpu
