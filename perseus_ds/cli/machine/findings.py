"""What would go wrong in training with the hook, the device and the GPUs that are here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from perseus_ds.cli.job.job_config import Finding
from perseus_ds.cli.machine.hook_status import HookStatus
from perseus_ds.cli.machine.local_gpus import LocalGpus, SeenGpu
from perseus_ds.device import DeviceRequest
from perseus_ds.device.choose import backends
from perseus_ds.device.guard import container, control_group, is_held, left_behind
from perseus_ds.device.guard.claim.journal import BACKENDS
from perseus_ds.errors import DeviceError
from perseus_ds.runtime.comm.interfaces import VARIABLE, reach_of

_LEAST_CLOCKS = 2


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """What one backend states when ``auto`` asks it; ``refusal`` is empty where it can serve every GPU."""

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
                priorities.append(backend.priority(DeviceRequest("auto", local_rank=index, lock=lock)))
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
    if setting == "auto" and chosen.name == "null" and not found.known:
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
    why_not = container.why_unguarded()
    if why_not is not None and chosen.name not in {"guardd", "null"}:
        yield Finding(f"no clock is set here: {why_not}", container.REMEDY)


def of_control_group(chosen: BackendAnswer) -> Iterator[Finding]:
    """Report that a kill of the job's whole control group would take its guards too."""
    why = control_group.why_killed_together()
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
