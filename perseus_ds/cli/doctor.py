"""State what is here, what the plugin would use, and what would go wrong.

Looks at GPUs, driver, the right to set clocks, clock grids, energy counters and the start-up hook,
and states which backend `device: automatic` takes and why. With --config it also reads a DeepSpeed
JSON, and where PERSEUS_CONFIG is set the file that it names. It names what in them would keep the
job from training with the plugin. Sets nothing, unless --calibrate is given. Then it also times
clock changes on every free GPU (no job holds it, no process uses it), and puts the clocks back.
Three quick checks of each GPU by reads alone: its clock is readable, its energy counter agrees with
its power, and what a read costs. Exit code 1 only if the configuration is refused or does not ask
for the plugin, or if --calibrate could measure no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.cli.gpus import (
    VISIBLE_DEVICES,
    LocalGpus,
    QuickCheck,
    SeenGpu,
    local_gpus,
    quick_checks,
    torch_has_gpus,
)
from perseus_ds.cli.job_config import Finding, HookStatus, hook_status, read_block_file, read_job_config
from perseus_ds.cli.output import DONE, REFUSED, print_result
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig
from perseus_ds.device.clock_change import Calibration, calibrate_together
from perseus_ds.device.gpu import DeviceRequest, Gpu, missing_right
from perseus_ds.errors import DeviceError, DeviceUnavailableError, PerseusError
from perseus_ds.guard import containment
from perseus_ds.guard.journal import BACKENDS
from perseus_ds.guard.open import backends, choose
from perseus_ds.guard.repair import is_held, stale_journals
from perseus_ds.runtime.reach import VARIABLE, reach_of

_BUS_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds doctor``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a DeepSpeed JSON to check as well")
    parser.add_argument(
        "--calibrate", action="store_true", help="set clocks of free GPUs for a second each, to time them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Look, print."""
    found = diagnose(options.config, calibrate=options.calibrate)
    print_result(json.dumps(found.as_json(), indent=1) if options.json else "\n".join(_lines(found)))
    nothing_timed = found.timed is not None and all(one.calibration is None for one in found.timed)
    return REFUSED if found.config_refused or nothing_timed else DONE


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Answer of one backend to ``automatic``; ``refusal`` is empty where it can serve every GPU."""

    name: str
    summary: str
    automatic: bool
    refusal: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one GPU's clock changes; ``refusal`` is empty where ``calibration`` is there."""

    index: int
    calibration: Calibration | None
    refusal: str

    def lines(self) -> Iterator[str]:
        """Report it in words."""
        found = self.calibration
        if found is None:
            yield f"not measured: {self.refusal}"
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found; ``config_refused`` states that the job's own file would be refused.

    ``checks`` holds the quick checks by NVML index, ``visible`` the indices of the GPUs that jobs would use.
    ``device`` is the backend that the job would take, ``chosen`` the one that ``automatic`` takes. ``timed``
    is what came of timing clock changes, None where that was not asked for.
    """

    hook: HookStatus
    missing_right: str | None
    gpus: LocalGpus
    checks: Mapping[int, QuickCheck]
    visible: frozenset[int]
    backends: tuple[BackendStatus, ...]
    device: str
    chosen: str
    chosen_because: str
    findings: tuple[Finding, ...]
    config_refused: bool
    timed: tuple[Timed, ...] | None

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        devices = []
        for gpu in self.gpus.gpus:
            index, content = gpu.identity.index, asdict(gpu)
            if gpu.achieved is not None:
                content["achieved"]["event_reasons"] = int(gpu.achieved.event_reasons)
            check = self.checks.get(index)
            content |= {"visible": index in self.visible, "checks": None if check is None else asdict(check)}
            devices.append(content)
        return {
            "hook": {"armed": self.hook.armed} | asdict(self.hook),
            "missing_right": self.missing_right,
            "devices": devices,
            "devices_refused": list(map(str, self.gpus.refused)),
            "backends": [asdict(answer) for answer in self.backends],
            "device": self.device,
            "automatic": {"backend": self.chosen, "reason": self.chosen_because},
            "findings": [asdict(finding) for finding in self.findings],
            "calibration": None if self.timed is None else [asdict(one) for one in self.timed],
        }


def diagnose(config: Path | None, *, calibrate: bool = False) -> Diagnosis:
    """Look at everything; set nothing, unless clock changes must be timed."""
    hook, gpus = hook_status(), local_gpus()
    used = gpus.visible(os.environ)
    job, of_config = _read_config(config, hook)
    setting = "automatic" if job is None else job.device
    lock = job is None or job.mode not in {"observe", "off"}
    answers = tuple(_probe_backends(used, lock=lock))
    best = next(one for one in answers if one.automatic and not one.refusal)
    on_cpu = tuple(_visibility(gpus))
    chosen, because = best.name, best.summary
    if torch_has_gpus() is False or (gpus.known and not used.known):
        chosen, because = "null", on_cpu[0].what
    findings = [*_of_job(hook, setting, answers, best, gpus)]
    if setting not in {"simulated", "null"}:
        findings += [*on_cpu, *_of_node(used, best, lock=lock)]
    reach = reach_of(os.environ.get("MASTER_ADDR", ""))
    if os.environ.get(VARIABLE) and not reach.interface:
        findings.append(Finding(reach.why, f"name one of them in {VARIABLE}, or unset it"))
    named = bool(config or os.environ.get(ENABLED_BY_FILE))
    return Diagnosis(
        hook=hook,
        missing_right=missing_right(),
        gpus=gpus,
        checks=quick_checks(gpus),
        visible=used.known,
        backends=answers,
        device=chosen if setting == "automatic" else setting,
        chosen=chosen,
        chosen_because=because,
        findings=(*findings, *of_config),
        config_refused=(named and job is None) or any(one.refused for one in of_config),
        timed=calibrate_gpus(used, best.name) if calibrate else None,
    )


def _read_config(config: Path | None, hook: HookStatus) -> tuple[PerseusConfig | None, list[Finding]]:
    """Read the job's files; no block: it was refused, does not ask for the plugin, or none is named."""
    file = os.environ.get(ENABLED_BY_FILE)
    try:
        if config is None:
            return (read_block_file(file, os.environ) if file else None), []
        job = read_job_config(config, os.environ, deepspeed_version=hook.deepspeed_version)
    except PerseusError as error:
        return None, [Finding(error.message, error.hint or "correct the file")]
    if job.perseus is None:
        off = Finding(f"{config} does not ask for the plugin", 'add "perseus": {"enabled": true}')
        return None, [off, *job.findings]
    return job.perseus, list(job.findings)


def _probe_backends(used: LocalGpus, *, lock: bool) -> Iterator[BackendStatus]:
    """Ask every backend as a training job would, for every GPU that it would use."""
    for backend in backends():
        refusals: list[str] = []
        for index in [gpu.identity.index for gpu in used.gpus] or sorted(used.known) or [0]:
            try:
                backend.check(DeviceRequest("automatic", local_rank=index, lock=lock))
            except DeviceError as error:
                refusals.append(str(error))
        refusal = "; ".join(dict.fromkeys(refusals))
        yield BackendStatus(backend.name, backend.summary, backend.automatic, refusal)


def _visibility(found: LocalGpus) -> Iterator[Finding]:
    """Return why jobs would train on the CPU, or on other GPUs than the numbers here suggest."""
    if torch_has_gpus() is False:
        yield Finding(
            "this Python's torch is built without CUDA: jobs train on the CPU, and no clock is set",
            "install a build of torch with CUDA (pytorch.org/get-started)",
        )
    value, visible = os.environ.get(VISIBLE_DEVICES), found.visible(os.environ).known
    if value is None or not found.known:
        return
    if value.startswith("MIG-"):
        yield Finding(
            f"{VISIBLE_DEVICES}={value} names MIG slices, which have no clock or energy of their own",
            "name whole GPUs",
        )
    elif not visible:
        yield Finding(
            f"{VISIBLE_DEVICES}={value} leaves no GPU: jobs train on the CPU, and no clock is set",
            f"unset {VISIBLE_DEVICES}, or name GPUs that are here",
        )
    elif (
        not value.startswith("GPU-")
        and len({gpu.identity.name for gpu in found.gpus}) > 1
        and visible < found.known
        and os.environ.get(_BUS_ORDER[0]) != _BUS_ORDER[1]
    ):
        yield Finding(
            f"{VISIBLE_DEVICES}={value} counts GPUs of several models with the fastest first,"
            " maybe not as here",
            f"{'='.join(_BUS_ORDER)}, or name them by UUID",
        )


def _of_job(
    hook: HookStatus, setting: str, answers: tuple[BackendStatus, ...], best: BackendStatus, gpus: LocalGpus
) -> Iterator[Finding]:
    """Return why jobs would not load the plugin, and what the device that they ask for cannot do here."""
    if not hook.armed:
        yield Finding(f"jobs of this Python do not load the plugin: {hook.reason}", hook.remedy)
    if setting == "automatic" and best.name == "null" and not gpus.known:
        why = f" ({gpus.refused[0]})" if gpus.refused else ""
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
    for one in answers:
        if one.name == setting and one.refusal:
            yield Finding(f"device: {setting} cannot work here: {one.refusal}", "device: automatic")


def _of_node(used: LocalGpus, best: BackendStatus, *, lock: bool) -> Iterator[Finding]:
    """Return what the GPUs lack or suffer from, and what could leave their clocks locked."""
    if lock and used.known:
        yield from _unguarded(best)
    for refused in used.refused:
        if refused.index is not None:
            remedy = refused.remedy or "leave it out of jobs"
            yield Finding(f"GPU {refused.index} cannot be used: {refused.what}", remedy)
    found: dict[tuple[str, str], list[SeenGpu]] = {}
    for gpu in used.gpus:
        for trouble in _troubles(gpu, best, lock=lock):
            found.setdefault(trouble, []).append(gpu)
    for (what, remedy), gpus in found.items():
        numbers = ", ".join(str(gpu.identity.index) for gpu in gpus)
        names = ", ".join(dict.fromkeys(gpu.identity.name for gpu in gpus))
        yield Finding(f"GPU{'s' * (len(gpus) > 1)} {numbers} ({names}): {what}", remedy)
    yield from _locks(used)
    for gpu in used.gpus:
        if unusual := "; ".join(() if gpu.power is None else gpu.power.unusual()):
            yield Finding(
                f"GPU {gpu.identity.index} ({gpu.identity.name}) has {unusual}: "
                "a profile serves only jobs under the same setting",
                "leave it, if an operator, DCGM or the site means it; otherwise nvidia-smi -pl, -rac",
            )


def _unguarded(best: BackendStatus) -> Iterator[Finding]:
    """Return what would leave clocks locked, should the job be killed with its guards."""
    why_not, why = containment.why_unguarded(), containment.why_killed_together()
    if why_not is not None and best.name not in {"guardd", "null"}:
        yield Finding(f"no clock is set here: {why_not}", containment.REMEDY)
    if why is not None and best.name in BACKENDS:
        yield Finding(
            f"who kills a job's whole control group (systemd, oomd) leaves its clocks locked: {why}",
            "run perseus-ds guardd on the node, or perseus-ds clocks reset after such a kill",
        )


def _troubles(gpu: SeenGpu, best: BackendStatus, *, lock: bool) -> Iterator[tuple[str, str]]:
    able = gpu.capabilities
    if len(able.clocks_mhz) <= 1:
        yield "its driver lists no choice of clocks: none can be set", "use a GPU whose driver does"
    elif lock and not able.can_lock and best.name == "nvml":
        yield (
            f"clocks can be read and not set: {able.why_not}",
            "give CAP_SYS_ADMIN on the node, or run perseus-ds guardd there",
        )
    if able.counter_period_s is None:
        yield "no energy counter: nothing can be measured", "use a Volta or newer"
    if gpu.achieved is not None and gpu.achieved.event_reasons.spoils:
        yield f"throttled just now: {gpu.achieved.event_reasons.name}", "see its power cap and cooling"


def _locks(found: LocalGpus) -> Iterator[Finding]:
    """Return which clocks appear locked though no job of ours that lives holds them."""
    left: dict[str, str] = {}
    try:
        left = stale_journals()
    except DeviceError as error:
        yield Finding(error.message, error.hint or "perseus-ds clocks reset")
    for uuid, what in left.items():
        yield Finding(f"{uuid} may still be locked: {what}", "perseus-ds clocks reset")
    for gpu in found.gpus:
        clock_mhz, uuid = gpu.standing_mhz, gpu.identity.uuid
        if clock_mhz is not None and uuid not in left and not is_held(uuid):
            yield Finding(
                f"GPU {gpu.identity.index} ({gpu.identity.name}) stands at {clock_mhz} MHz as if locked: a "
                "job gives it default clocks, also at its end",
                "restore_clock_mhz, if it is meant, else perseus-ds clocks reset --all",
            )


def calibrate_gpus(found: LocalGpus, backend: str) -> tuple[Timed, ...]:
    """Time the clock changes of the GPUs that nobody holds and nobody works on, alone and all at once.

    ``backend`` is the one that jobs would set clocks through. The clocks are set by a guard that has taken
    the GPU's lease, as in training. So a running job of ours is refused with its name, and the
    clocks are put back whatever happens to this command.
    """
    timed: list[Timed] = []
    with ExitStack() as leases:
        taken: list[tuple[int, Gpu]] = []
        for seen in found.gpus:
            index = seen.identity.index
            try:
                if seen.standing_mhz is not None and not is_held(seen.identity.uuid):
                    raise DeviceUnavailableError(  # as whatever else refuses it
                        f"GPU {index} looks locked at {seen.standing_mhz} MHz, which measuring would remove"
                    )
                taken.append((index, leases.enter_context(_taken(index, backend))))
            except DeviceError as error:
                timed.append(Timed(index, None, str(error)))
        answers = calibrate_together([gpu for _, gpu in taken])
    for (index, _), answer in zip(taken, answers, strict=True):
        if isinstance(answer, DeviceError):
            timed.append(Timed(index, None, str(answer)))
        else:
            timed.append(Timed(index, answer, ""))
    return tuple(sorted(timed, key=lambda one: one.index))


def _taken(index: int, backend: str) -> Gpu:
    """Take a GPU as a training job would, after seeing that nobody works on it, and before trusting that.

    Raises:
        DeviceError: no right to set clocks, another holder, or somebody works on it.
    """
    with choose(DeviceRequest("nvml", local_rank=index, lock=False)).gpu as reader:
        _refuse_busy(reader)
    gpu = choose(DeviceRequest(backend, local_rank=index)).gpu
    try:
        why_not = gpu.capabilities().why_not
        if why_not is not None:
            raise DeviceUnavailableError(why_not)
        _refuse_busy(gpu)
    except DeviceError:
        gpu.close()
        raise
    return gpu


def _refuse_busy(gpu: Gpu) -> None:
    busy = gpu.busy()
    if busy is not None:
        raise DeviceUnavailableError(f"GPU {gpu.identify().index} is in use: {busy}")


def _lines(found: Diagnosis) -> Iterator[str]:
    """Lay the diagnosis out, one topic per block, the trouble last."""
    hook, visible = found.hook, os.environ.get(VISIBLE_DEVICES)
    yield f"hook     {'armed' if hook.armed else 'not armed'} ({hook.entry_point or 'no entry point'})"
    yield f"         {hook.python}"
    yield f"         torch {hook.torch_version or 'none'}, deepspeed {hook.deepspeed_version or 'none'}"
    yield f"rights   {found.missing_right or 'may set clocks'}"
    for gpu in found.gpus.gpus:
        index = gpu.identity.index
        head, *lines = _gpu_lines(gpu)
        if (check := found.checks.get(index)) is not None:
            lines.append(check.line)
        if visible is not None:
            lines.append(f"{'left' if index in found.visible else 'hidden'} by {VISIBLE_DEVICES}={visible}")
        lines += [line for timed in found.timed or () if timed.index == index for line in timed.lines()]
        yield from [head, *(f"         {line}" for line in lines)]
    yield from (f"gpu      {refusal}" for refusal in found.gpus.refused)
    yield ""
    automatic = f"device: automatic takes {found.chosen}, {found.chosen_because}"
    yield automatic if found.device == found.chosen else f"device: {found.device}, as the configuration asks"
    for answer in found.backends:
        never = not answer.automatic and not answer.refusal
        state = "taken" if answer.name == found.device else "possible"
        if answer.refusal:
            state = f"no: {answer.refusal}"
        elif never and answer.name != found.device:
            state = "only when asked for by name"
        yield f"  {answer.name:<10} {state}"
    yield ""
    yield (
        "what would go wrong in training"
        if found.findings
        else ("nothing stands in the way of training with the plugin")
    )
    for finding in found.findings:
        yield from (f"  - {finding.what}", f"    do: {finding.remedy}")


def _gpu_lines(gpu: SeenGpu) -> Iterator[str]:
    who, able = gpu.identity, gpu.capabilities
    yield f"gpu {who.index:<4} {who.name}, {who.uuid}, {who.pci_bus_id}, driver {who.driver}"
    yield f"clocks {able.grid}; lock: {'yes' if able.can_lock else able.why_not}"
    memory = f"cannot be locked: {able.memory_why_not}" if able.memory_why_not else "can be locked"
    yield f"memory clock {memory}"
    counter = "none" if able.counter_period_s is None else f"every {1e3 * able.counter_period_s:.0f} ms"
    yield f"energy counter {counter}; a clock change takes {1e3 * able.switch_latency_s:.0f} ms"
    if gpu.power is not None and (fields := gpu.power.fields()):
        stated = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in fields.items())
        yield f"set by operators: {stated}"
    if gpu.achieved is not None:
        reasons = (gpu.achieved.event_reasons.name or "none").lower().replace("|", ", ")
        yield f"now at {gpu.achieved.clock_mhz} MHz, reasons: {reasons}"
