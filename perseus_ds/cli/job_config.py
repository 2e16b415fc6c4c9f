"""Check before a job starts what would keep it from training with the plugin."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from perseus_ds.adapters.deepspeed_settings import crashes_with_timers, read_settings
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig, load, parse, read_block
from perseus_ds.config.load import read_deepspeed_json, refuse_two_blocks
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.usable import check_usable

GROUP, NAME = "torch.backends", "perseus_ds"
SWITCH = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_MIN_TORCH = (2, 5)
_SEVERAL = 2  # replicas: nearly every job has them, and its JSON does not say


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a job would have, and its remedy; ``refused``: it would train without the plugin."""

    what: str
    remedy: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class JobConfig:
    """A DeepSpeed configuration: its checked block, if it asks for the plugin, and what would go wrong.

    ``refusal`` is why its engine is not served in training, however many ranks there are; None where it is.
    """

    name: str
    perseus: PerseusConfig | None
    findings: tuple[Finding, ...]
    refusal: PerseusError | None


def read_job_config(
    source: str | Path, environment: Mapping[str, str], *, deepspeed_version: str | None
) -> JobConfig:
    """Check the block, the configuration's own or the one that ``PERSEUS_CONFIG`` names, and the rest.

    Raises:
        PerseusError: it cannot be read, or training would refuse its block or what the block names.
    """
    perseus = load(source, environment)
    if perseus is not None:
        refuse_two_blocks(environment)
        _check(perseus)
    elif file := environment.get(ENABLED_BY_FILE):
        perseus = read_block_file(file, environment)
    (name, content), refusal = read_deepspeed_json(source), None
    findings = [*_findings(content, deepspeed_version)]
    if perseus is not None and perseus.mode != "off":
        refusal = read_settings(content, replicas=1).refusal()
        findings = [*_engine_findings(content, perseus), *findings]
    return JobConfig(name, perseus, tuple(findings), refusal)


def read_block_file(file: str, environment: Mapping[str, str]) -> PerseusConfig:
    """Check what ``PERSEUS_CONFIG`` names.

    Raises:
        PerseusError: it cannot be read, does not ask for the plugin, or training would refuse it.
    """
    perseus = parse({"enabled": True, **read_block(file)}, environment)
    if not perseus.enabled:
        raise ConfigError(f"{file} does not ask for the plugin", hint='remove "enabled": false')
    _check(perseus)
    return perseus


def _check(perseus: PerseusConfig) -> None:
    check_usable(perseus)
    run_dir = Path(perseus.run_dir)
    plans = (*run_dir.glob("plan.*json"), *run_dir.glob("engine*/plan.*json"))
    if perseus.mode == "run" and not plans:
        raise ConfigError(
            f"perseus.mode is 'run' and there is no plan in {run_dir}", hint="use mode automatic once"
        )


def _engine_findings(content: Mapping[str, object], perseus: PerseusConfig) -> Iterator[Finding]:
    engine = read_settings(content, replicas=_SEVERAL)
    if (refusal := engine.refusal()) is not None:
        yield Finding(refusal.message, refusal.hint or "correct the file", refused=True)
    if perseus.objective.policy == "no_slowdown" and engine.never_a_pipeline:
        yield Finding(
            f"ZeRO-{engine.zero_stage} has no pipeline: objective.policy no_slowdown saves nothing, except"
            " beside a straggler",
            "set objective.policy to max_slowdown, deadline or min_energy",
        )


def _findings(content: Mapping[str, object], deepspeed_version: str | None) -> Iterator[Finding]:
    on = {
        key: isinstance(value, Mapping) and value.get("enabled", False) is True
        for key, value in content.items()
    }
    if on.get("autotuning"):
        yield Finding("autotuning is on: the plugin stays off", "train first, tune elsewhere")
    crashes = crashes_with_timers(deepspeed_version or "")
    on["wall_clock_breakdown"] = content.get("wall_clock_breakdown") is True
    for key in ("wall_clock_breakdown", "flops_profiler"):
        if crashes and on.get(key) and not read_settings(content, replicas=_SEVERAL).never_a_pipeline:
            ends = f"DeepSpeed {deepspeed_version} ends every pipeline job with it"
            yield Finding(f"{key} is on: {ends}", f"turn {key} off")


@dataclass(frozen=True, slots=True)
class HookStatus:
    """State of the start-up hook; ``reason`` and ``remedy`` are empty when it is armed."""

    python: str
    entry_point: str | None
    autoload: str
    torch_version: str | None
    deepspeed_version: str | None
    reason: str
    remedy: str

    @property
    def armed(self) -> bool:
        """Return whether training jobs of this Python load the plugin by themselves."""
        return not self.reason


def installed_version(package: str) -> str | None:
    """Return the version of a package in this Python; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def hook_status(
    environment: Mapping[str, str] = os.environ,
    *,
    version_of: Callable[[str], str | None] = installed_version,
) -> HookStatus:
    """Read from metadata whether `import torch` in this Python will load the plugin; import nothing."""
    found = next((point.value for point in entry_points(group=GROUP) if point.name == NAME), None)
    torch, deepspeed = version_of("torch"), version_of("deepspeed")
    autoload = environment.get(SWITCH, "1")
    reason = remedy = ""
    if found is None:
        reason = f"no entry point {NAME} in group {GROUP} is installed"
        remedy = f"install the package into this Python: {sys.executable} -m pip install perseus_ds"
    elif torch is None:
        reason, remedy = "torch is not installed", "install torch 2.5 or newer"
    elif _release(torch)[:2] < _MIN_TORCH:
        reason = f"torch {torch} has no autoload of entry points"
        remedy = "upgrade to torch 2.5, or call perseus_ds.attach(engine) in the script"
    elif autoload == "0":
        reason, remedy = f"{SWITCH} is 0: torch loads no entry point", f"unset {SWITCH}"
    elif not (deepspeed or version_of("megatron-core") or environment.get(ENABLED_BY_FILE)):
        reason = "neither deepspeed nor megatron-core is installed"
        remedy = f"install the one that trains; for torch's own pipelining set {ENABLED_BY_FILE}"
    return HookStatus(sys.executable, found, autoload, torch, deepspeed, reason, remedy)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3])
