"""What ``perseus-ds doctor`` finds: devices, rights, hook, and what would go wrong in training."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.cli.job.job_config import Finding, read_block_file, read_job_config
from perseus_ds.cli.machine.calibrate_gpus import Timed, calibrate_gpus
from perseus_ds.cli.machine.findings import (
    BackendAnswer,
    answers,
    of_container,
    of_control_group,
    of_device,
    of_gpus,
    of_hook,
    of_locks,
    of_network,
    of_power,
)
from perseus_ds.cli.machine.hook_status import HookStatus, hook_status
from perseus_ds.cli.machine.local_gpus import LocalGpus, SeenGpu, local_gpus
from perseus_ds.cli.machine.quick_checks import QuickCheck, quick_checks
from perseus_ds.cli.machine.visible_gpus import findings_of_visibility, torch_has_gpus, visible_gpus
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig
from perseus_ds.device.rights import missing_right
from perseus_ds.errors import PerseusError


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
    setting = "auto" if job is None else job.device
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
        device=chosen if setting == "auto" else setting,
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
