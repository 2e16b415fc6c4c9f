"""What is here, what the plugin would use, and what would go wrong.

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
    findings_of_visibility,
    local_gpus,
    quick_checks,
    torch_has_gpus,
    visible_gpus,
)
from perseus_ds.cli.job_config import Finding, HookStatus, hook_status, read_block_file, read_job_config
from perseus_ds.cli.output import DONE, REFUSED, say
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig
from perseus_ds.device.clock_change import Calibration, calibrate_together
from perseus_ds.device.gpu import DeviceRequest, Gpu, missing_right
from perseus_ds.errors import DeviceError, DeviceUnavailableError, PerseusError
from perseus_ds.guard import spawn
from perseus_ds.guard.journal import BACKENDS, is_held, left_behind
from perseus_ds.guard.open import backends, choose
from perseus_ds.runtime.comm.interfaces import VARIABLE, reach_of

# What would go wrong in training with the hook, the device and the GPUs that are here.

_LEAST_CLOCKS = 2


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """Answer of one backend to ``automatic``; ``refusal`` is empty where it can serve every GPU."""

    name: str
    summary: str
    priority: float | None
    refusal: str


def answers(used: LocalGpus, *, lock: bool) -> Iterator[BackendAnswer]:
    """Ask every backend as a training job would, for every GPU that it would use."""
    for backend in backends():
        priorities: list[float] = []
        refusals: list[str] = []
        for index in [gpu.identity.index for gpu in used.gpus] or sorted(used.known) or [0]:
            try:
                priorities.append(backend.priority(DeviceRequest("automatic", local_rank=index, lock=lock)))
            except DeviceError as error:
                refusals.append(str(error))
        refusal = "; ".join(dict.fromkeys(refusals))
        yield BackendAnswer(backend.name, backend.summary, None if refusal else min(priorities), refusal)


def of_hook(hook: HookStatus) -> Iterator[Finding]:
    """Return why jobs would not load the plugin."""
    if not hook.armed:
        yield Finding(f"jobs of this Python do not load the plugin: {hook.reason}", hook.remedy)


def of_device(
    setting: str, answers: tuple[BackendAnswer, ...], chosen: BackendAnswer, found: LocalGpus
) -> Iterator[Finding]:
    """Return what the device that the job asks for cannot do here."""
    if setting == "automatic" and chosen.name == "null" and not found.known:
        why = next((one for one in found.refused), None)
        yield Finding(
            "no GPU that we know: jobs run at default clocks and save nothing"
            + ("" if why is None else f" ({why})"),
            "device: simulated tries everything out without a GPU",
        )
    if setting == "simulated":
        yield Finding(
            "device is simulated: what the job saves is simulated, and no GPU's clock is set",
            "device: automatic, where GPUs train",
        )
    if setting == "null":
        yield Finding("device is null: the job saves nothing", "device: automatic")
    for answer in answers:
        if answer.name == setting and answer.refusal:
            yield Finding(f"device: {setting} cannot work here: {answer.refusal}", "device: automatic")


def of_container(chosen: BackendAnswer) -> Iterator[Finding]:
    """Report that the job's own guards could leave clocks locked, where the node's service is not there."""
    why_not = spawn.why_unguarded()
    if why_not is not None and chosen.name not in {"guardd", "null"}:
        yield Finding(f"no clock is set here: {why_not}", spawn.REMEDY)


def of_control_group(chosen: BackendAnswer) -> Iterator[Finding]:
    """Report that a kill of the job's whole control group would take its guards too."""
    why = spawn.why_killed_together()
    if why is not None and chosen.name in BACKENDS:
        yield Finding(
            f"who kills a job's whole control group (systemd, oomd) leaves its clocks locked: {why}",
            "run perseus-ds guardd on the node, or perseus-ds clocks reset after such a kill",
        )


def of_network() -> Iterator[Finding]:
    """Return where ranks of several hosts would meet each other in another way than the user asks for."""
    reach = reach_of(os.environ.get("MASTER_ADDR", ""))
    if os.environ.get(VARIABLE) and not reach.interface:
        yield Finding(reach.why, f"name one of them in {VARIABLE}, or unset it")


def of_locks(found: LocalGpus) -> Iterator[Finding]:
    """Return which clocks stand locked though no job of ours that lives holds them."""
    try:
        left = {one.uuid: one.what for one in left_behind()}
    except DeviceError as error:
        yield Finding(error.message, error.hint or "perseus-ds clocks reset")
        left = {}
    for uuid, what in left.items():
        yield Finding(f"{uuid} may still be locked: {what}", "perseus-ds clocks reset")
    for gpu in found.gpus:
        clock_mhz = gpu.standing_mhz
        if clock_mhz is not None and gpu.identity.uuid not in left and not is_held(gpu.identity.uuid):
            yield Finding(
                f"GPU {gpu.identity.index} ({gpu.identity.name}) stands at {clock_mhz} MHz as if locked: a "
                "job gives it default clocks, also at its end",
                "restore_clock_mhz, if it is meant, else perseus-ds clocks reset --all",
            )


def of_power(found: LocalGpus) -> Iterator[Finding]:
    """Return what operators or their tools have set of power and clocks, other than by default."""
    for gpu in found.gpus:
        unusual = "; ".join(() if gpu.power is None else gpu.power.unusual())
        if unusual:
            yield Finding(
                f"GPU {gpu.identity.index} ({gpu.identity.name}) has {unusual}: "
                "a profile serves only jobs under the same setting",
                "leave it, if an operator, DCGM or the site means it; otherwise nvidia-smi -pl, -rac",
            )


def of_gpus(used: LocalGpus, chosen: BackendAnswer, *, lock: bool) -> Iterator[Finding]:
    """Return what each GPU lacks, or suffers from just now; like ones together."""
    for refused in used.refused:
        if refused.index is not None:
            yield Finding(
                f"GPU {refused.index} cannot be used: {refused.what}",
                refused.remedy or "leave it out of jobs",
            )
    found: dict[tuple[str, str], list[SeenGpu]] = {}
    for gpu in used.gpus:
        for trouble in _troubles(gpu, chosen, lock=lock):
            found.setdefault(trouble, []).append(gpu)
    for (what, remedy), gpus in found.items():
        numbers = ", ".join(str(gpu.identity.index) for gpu in gpus)
        names = ", ".join(dict.fromkeys(gpu.identity.name for gpu in gpus))
        yield Finding(f"GPU{'s' * (len(gpus) > 1)} {numbers} ({names}): {what}", remedy)


def _troubles(gpu: SeenGpu, chosen: BackendAnswer, *, lock: bool) -> Iterator[tuple[str, str]]:
    able = gpu.capabilities
    if len(able.clocks_mhz) < _LEAST_CLOCKS:
        yield "its driver lists no choice of clocks: none can be set", "use a GPU whose driver does"
    elif lock and not able.can_lock and chosen.name == "nvml":
        yield (
            f"clocks can be read and not set: {able.why_not}",
            "give CAP_SYS_ADMIN on the node, or run perseus-ds guardd there",
        )
    if able.counter_period_s is None:
        yield "no energy counter: nothing can be measured", "use a Volta or newer"
    if gpu.achieved is not None and gpu.achieved.event_reasons.spoils:
        yield f"throttled just now: {gpu.achieved.event_reasons.name}", "see its power cap and cooling"


# Time the clock changes of this machine's GPUs: only of those that nobody holds and nobody works on.
#
# The clocks are set by a guard that has taken the GPU's lease, as in training. So a running job of
# ours is refused with its name, and whatever befalls this command, the clocks are put back.


@dataclass(frozen=True, slots=True)
class Timed:
    """What came of one GPU; ``refusal`` is empty where ``calibration`` is there."""

    index: int
    calibration: Calibration | None
    refusal: str

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return asdict(self)

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
        yield (
            f"measured: call {_ms(found.call_s)}, up {_ms(found.up_s)}, down {_ms(found.down_s)}, "
            f"all GPUs at once {_ms(found.together_s)}; counter every {_ms(found.counter_period_s)}"
        )


def calibrate_gpus(found: LocalGpus, backend: str) -> tuple[Timed, ...]:
    """Take every GPU that may be taken, measure them alone and all at once, and put them back.

    ``backend`` is the one that jobs would set clocks through.
    """
    refused: list[Timed] = []
    with ExitStack() as leases:
        taken: list[tuple[int, Gpu]] = []
        for seen in found.gpus:
            index = seen.identity.index
            try:
                _refuse_locked(seen)
                taken.append((index, leases.enter_context(_taken(index, backend))))
            except DeviceError as error:
                refused.append(Timed(index, None, str(error)))
        answers = calibrate_together([gpu for _, gpu in taken])
    measured = [_timed(index, answer) for (index, _), answer in zip(taken, answers, strict=True)]
    return tuple(sorted([*measured, *refused], key=lambda timed: timed.index))


def _refuse_locked(seen: SeenGpu) -> None:
    """Refuse a GPU that looks locked: to take it would remove an operator's lock.

    Raises:
        DeviceUnavailableError: it looks locked, and no job of ours holds it.
    """
    if seen.standing_mhz is not None and not is_held(seen.identity.uuid):
        raise DeviceUnavailableError(
            f"GPU {seen.identity.index} looks locked at {seen.standing_mhz} MHz, which measuring would remove"
        )


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


def _timed(index: int, answer: Calibration | DeviceError) -> Timed:
    if isinstance(answer, DeviceError):
        return Timed(index, None, str(answer))
    return Timed(index, answer, "")


def _ms(duration_s: float | None) -> str:
    return "unknown" if duration_s is None else f"{1e3 * duration_s:.3g} ms"


# What ``perseus-ds doctor`` finds: devices, rights, hook, and what would go wrong in training.


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found; ``config_refused`` states that the job's own file would be refused.

    ``checks`` holds the quick checks by NVML index, ``visible`` the indices of the GPUs that jobs would use.
    ``device`` is the backend that the job would take, ``chosen`` the one that ``automatic`` takes. ``timed``
    is what came of timing clock changes, ``None`` where that was not asked for.
    """

    hook: HookStatus
    missing_right: str | None
    gpus: LocalGpus
    checks: Mapping[int, QuickCheck]
    visible: frozenset[int]
    backends: tuple[BackendAnswer, ...]
    device: str
    chosen: str
    chosen_because: str
    findings: tuple[Finding, ...]
    config_refused: bool
    timed: tuple[Timed, ...] | None

    @property
    def nothing_timed(self) -> bool:
        """Whether clock changes must be timed and not one GPU could be taken for it."""
        return self.timed is not None and all(one.calibration is None for one in self.timed)

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return {
            "hook": self.hook.as_json(),
            "missing_right": self.missing_right,
            "devices": [
                _as_json(gpu)
                | {"visible": gpu.identity.index in self.visible}
                | {"checks": None if (one := self.checks.get(gpu.identity.index)) is None else asdict(one)}
                for gpu in self.gpus.gpus
            ],
            "devices_refused": list(map(str, self.gpus.refused)),
            "backends": [asdict(answer) for answer in self.backends],
            "device": self.device,
            "automatic": {"backend": self.chosen, "reason": self.chosen_because},
            "findings": [asdict(finding) for finding in self.findings],
            "calibration": None if self.timed is None else [one.as_json() for one in self.timed],
        }


def diagnose(config: Path | None, *, calibrate: bool = False) -> Diagnosis:
    """Look at everything; set nothing, unless clock changes must be timed."""
    hook, gpus = hook_status(), local_gpus()
    used = visible_gpus(gpus, os.environ)
    job, of_config = _of_config(config, hook)
    setting = "automatic" if job is None else job.device
    lock = job is None or job.mode not in {"observe", "off"}
    answered = tuple(answers(used, lock=lock))
    by_itself = [answer for answer in answered if answer.priority is not None and answer.priority >= 0]
    best = max(by_itself, key=lambda answer: answer.priority or 0.0)
    on_cpu = tuple(findings_of_visibility(gpus, os.environ))
    chosen, because = best.name, best.summary
    if torch_has_gpus() is False or (gpus.known and not used.known):
        chosen, because = "null", on_cpu[0].what
    real = setting not in {"simulated", "null"}
    return Diagnosis(
        hook=hook,
        missing_right=missing_right(),
        gpus=gpus,
        checks=quick_checks(gpus),
        visible=used.known,
        backends=answered,
        device=chosen if setting == "automatic" else setting,
        chosen=chosen,
        chosen_because=because,
        findings=(
            *of_hook(hook),
            *of_device(setting, answered, best, gpus),
            *((*on_cpu, *_of_gpus(used, best, lock=lock)) if real else ()),
            *of_network(),
            *of_config,
        ),
        config_refused=(bool(config or os.environ.get(ENABLED_BY_FILE)) and job is None)
        or any(one.refused for one in of_config),
        timed=calibrate_gpus(used, best.name) if calibrate else None,
    )


def _of_gpus(used: LocalGpus, best: BackendAnswer, *, lock: bool) -> Iterator[Finding]:
    if lock and used.known:
        yield from of_container(best)
        yield from of_control_group(best)
    yield from of_gpus(used, best, lock=lock)
    yield from of_locks(used)
    yield from of_power(used)


def _of_config(config: Path | None, hook: HookStatus) -> tuple[PerseusConfig | None, list[Finding]]:
    """Read the job's files; no block: it was refused, does not ask for us, or none is named."""
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


def _as_json(gpu: SeenGpu) -> dict[str, object]:
    content = asdict(gpu)
    if gpu.achieved is not None:
        content["achieved"]["event_reasons"] = int(gpu.achieved.event_reasons)
    return content


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
    say(json.dumps(found.as_json(), indent=1) if options.json else render(found))
    return REFUSED if found.config_refused or found.nothing_timed else DONE


def render(found: Diagnosis) -> str:
    """Lay the diagnosis out, one topic per block, the trouble last."""
    return "\n".join([*_machine(found), "", *_backends(found), "", *_trouble(found)])


def _machine(found: Diagnosis) -> Iterator[str]:
    hook = found.hook
    yield f"hook     {'armed' if hook.armed else 'not armed'} ({hook.entry_point or 'no entry point'})"
    yield f"         {hook.python}"
    yield f"         torch {hook.torch_version or 'none'}, deepspeed {hook.deepspeed_version or 'none'}"
    yield f"rights   {found.missing_right or 'may set clocks'}"
    for gpu in found.gpus.gpus:
        yield from _gpu(gpu)
        if (check := found.checks.get(gpu.identity.index)) is not None:
            yield f"         {check.line}"
        if VISIBLE_DEVICES in os.environ:
            left = gpu.identity.index in found.visible
            state = "left" if left else "hidden"
            yield f"         {state} by {VISIBLE_DEVICES}={os.environ[VISIBLE_DEVICES]}"
        for timed in found.timed or ():
            if timed.index == gpu.identity.index:
                yield from (f"         {line}" for line in timed.lines())
    for refusal in found.gpus.refused:
        yield f"gpu      {refusal}"


def _gpu(gpu: SeenGpu) -> Iterator[str]:
    who, able = gpu.identity, gpu.capabilities
    yield f"gpu {who.index:<4} {who.name}, {who.uuid}, {who.pci_bus_id}, driver {who.driver}"
    yield f"         clocks {able.grid}; lock: {'yes' if able.can_lock else able.why_not}"
    memory = f"cannot be locked: {able.memory_why_not}" if able.memory_why_not else "can be locked"
    yield f"         memory clock {memory}"
    counter = "none" if able.counter_period_s is None else f"every {1e3 * able.counter_period_s:.0f} ms"
    yield f"         energy counter {counter}; a clock change takes {1e3 * able.switch_latency_s:.0f} ms"
    if gpu.power is not None and (stated := gpu.power.fields()):
        told = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in stated.items())
        yield f"         set by operators: {told}"
    if gpu.achieved is not None:
        reasons = gpu.achieved.event_reasons.name or "none"
        yield f"         now at {gpu.achieved.clock_mhz} MHz, reasons: {reasons.lower().replace('|', ', ')}"


def _backends(found: Diagnosis) -> Iterator[str]:
    automatic = f"device: automatic takes {found.chosen}, {found.chosen_because}"
    asked = found.device != found.chosen
    yield f"device: {found.device}, as the configuration asks" if asked else automatic
    for answer in found.backends:
        if answer.refusal:
            yield f"  {answer.name:<10} no: {answer.refusal}"
        elif answer.name == found.device:
            yield f"  {answer.name:<10} taken"
        else:
            never = answer.priority is not None and answer.priority < 0
            yield f"  {answer.name:<10} {'only when asked for by name' if never else 'possible'}"


def _trouble(found: Diagnosis) -> Iterator[str]:
    if not found.findings:
        yield "nothing stands in the way of training with the plugin"
        return
    yield "what would go wrong in training"
    for finding in found.findings:
        yield f"  - {finding.what}"
        yield f"    do: {finding.remedy}"
