"""What ``perseus-ds doctor`` finds: devices, rights, hook, and what would go wrong in training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.cli.hook_status import HookStatus, hook_status
from perseus_ds.cli.job_config import Finding, read_job_config
from perseus_ds.cli.local_gpus import LocalGpus, SeenGpu, local_gpus
from perseus_ds.config import PerseusConfig
from perseus_ds.device import DeviceRequest, backends
from perseus_ds.device.rights import missing_right
from perseus_ds.errors import ConfigError, DeviceError

_LEAST_CLOCKS = 2


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """What one backend says when ``auto`` asks it; ``refusal`` is empty where it can serve."""

    name: str
    summary: str
    priority: float | None
    refusal: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found; ``config_refused`` says that the job's own file would be refused."""

    hook: HookStatus
    missing_right: str | None
    gpus: LocalGpus
    backends: tuple[BackendAnswer, ...]
    chosen: str
    chosen_because: str
    findings: tuple[Finding, ...]
    config_refused: bool

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return {
            "hook": self.hook.as_json(),
            "missing_right": self.missing_right,
            "devices": [_as_json(gpu) for gpu in self.gpus.gpus],
            "devices_refused": list(self.gpus.refused),
            "backends": [asdict(answer) for answer in self.backends],
            "auto": {"backend": self.chosen, "reason": self.chosen_because},
            "findings": [asdict(finding) for finding in self.findings],
        }


def diagnose(config: Path | None) -> Diagnosis:
    """Look at everything; set nothing."""
    hook, gpus = hook_status(), local_gpus()
    job, of_config = _of_config(config, hook)
    setting = "auto" if job is None else job.device
    answers = tuple(_answers())
    by_itself = [answer for answer in answers if answer.priority is not None and answer.priority >= 0]
    chosen = max(by_itself, key=lambda answer: answer.priority or 0.0)
    return Diagnosis(
        hook=hook,
        missing_right=missing_right(),
        gpus=gpus,
        backends=answers,
        chosen=chosen.name,
        chosen_because=chosen.summary,
        findings=(*_of_hook(hook), *_of_device(setting, answers, chosen), *_of_gpus(gpus), *of_config),
        config_refused=config is not None and job is None,
    )


def _answers() -> Iterator[BackendAnswer]:
    """Ask every backend as a training job would."""
    for backend in backends():
        try:
            priority = backend.priority(DeviceRequest("auto"))
        except DeviceError as error:
            yield BackendAnswer(backend.name, backend.summary, None, str(error))
        else:
            yield BackendAnswer(backend.name, backend.summary, priority, "")


def _of_hook(hook: HookStatus) -> Iterator[Finding]:
    if not hook.armed:
        yield Finding(f"jobs of this Python do not load the plugin: {hook.reason}", hook.remedy)


def _of_device(setting: str, answers: tuple[BackendAnswer, ...], chosen: BackendAnswer) -> Iterator[Finding]:
    """Say what the device that the job asks for cannot do here."""
    if setting == "auto" and chosen.name == "null":
        yield Finding(
            "no GPU that we know: jobs run at default clocks and save nothing",
            "device: simulated tries everything out without a GPU",
        )
    for answer in answers:
        if answer.name == setting and answer.refusal:
            yield Finding(f"device: {setting} cannot work here: {answer.refusal}", "device: auto")


def _of_gpus(found: LocalGpus) -> Iterator[Finding]:
    for gpu in found.gpus:
        name, able = f"GPU {gpu.identity.index} ({gpu.identity.name})", gpu.capabilities
        if not able.can_lock:
            yield Finding(
                f"{name}: clocks can be read and not set: {able.why_not}",
                "run as root or with CAP_SYS_ADMIN",
            )
        if able.counter_period_s is None:
            yield Finding(f"{name} has no energy counter: nothing can be measured", "use a Volta or newer")
        if len(able.clocks_mhz) < _LEAST_CLOCKS:
            yield Finding(f"{name} lists no choice of clocks", "use a GPU that does")
        if gpu.achieved is not None and gpu.achieved.event_reasons.spoils:
            yield Finding(
                f"{name} is throttled just now: {gpu.achieved.event_reasons.name}",
                "see its power cap and cooling",
            )


def _of_config(config: Path | None, hook: HookStatus) -> tuple[PerseusConfig | None, list[Finding]]:
    """Read the job's file; no block means that it was refused or does not ask for us."""
    if config is None:
        return None, []
    try:
        job = read_job_config(config, os.environ, deepspeed_version=hook.deepspeed_version)
    except ConfigError as error:
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
