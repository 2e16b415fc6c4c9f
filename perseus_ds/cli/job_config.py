"""What in a DeepSpeed configuration would keep a job from training with the plugin, before it starts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from perseus_ds.adapters.deepspeed_settings import settings_of
from perseus_ds.config import (
    ENABLED_BY_FILE,
    PerseusConfig,
    load,
    parse,
    read_block,
    read_deepspeed_json,
    read_source,
    refuse_two_blocks,
)
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.startup.usable import check_usable

_TIMERS_CRASH = ((0, 18, 3), (0, 19, 8))
_SEVERAL = 2  # replicas: nearly every job has them, and its JSON does not say
_PIPELINE_TIMERS = "bwd_microstep timer has already been started"


@dataclass(frozen=True, slots=True)
class Finding:
    """What would go wrong, and what to do about it; ``refused``: the job would train without the plugin."""

    what: str
    remedy: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One DeepSpeed configuration: its checked block, if it asks for us, and what would go wrong.

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
    file = environment.get(ENABLED_BY_FILE)
    if perseus is not None:
        refuse_two_blocks(environment)
        _check(perseus)
    elif file:
        perseus = read_block_file(file, environment)
    content = read_deepspeed_json(source)
    name = read_source(source)[0]
    off = perseus is None or perseus.mode == "off"
    refusal = None if off else settings_of(content, replicas=1).refusal()
    findings = [*_findings(content, deepspeed_version)]
    if perseus is not None and not off:
        findings = [*_engine_findings(content, perseus), *findings]
    return JobConfig(name, perseus, tuple(findings), refusal)


def read_block_file(file: str, environment: Mapping[str, str]) -> PerseusConfig:
    """Check what ``PERSEUS_CONFIG`` names.

    Raises:
        PerseusError: it cannot be read, does not ask for us, or training would refuse it.
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
    engine = settings_of(content, replicas=_SEVERAL)
    if (refusal := engine.refusal()) is not None:
        yield Finding(refusal.message, refusal.hint or "correct the file", refused=True)
    if perseus.objective.policy == "no_slowdown" and engine.never_a_pipeline:
        yield Finding(
            f"ZeRO-{engine.zero_stage} has no pipeline: objective.policy no_slowdown saves nothing, except"
            " beside a straggler",
            "set objective.policy to max_slowdown, deadline or min_energy",
        )


def _findings(content: Mapping[str, object], deepspeed_version: str | None) -> Iterator[Finding]:
    if _on(content, "autotuning"):
        yield Finding("autotuning is on: the plugin stays off", "train first, tune elsewhere")
    version = _numbers(deepspeed_version or "")
    pipeline = not settings_of(content, replicas=_SEVERAL).never_a_pipeline
    if not pipeline or not _TIMERS_CRASH[0] <= version <= _TIMERS_CRASH[1]:
        return
    for key, is_on in (
        ("wall_clock_breakdown", content.get("wall_clock_breakdown") is True),
        ("flops_profiler", _on(content, "flops_profiler")),
    ):
        if is_on:
            yield Finding(
                f"{key} is on: DeepSpeed {deepspeed_version} ends every pipeline job with it"
                f" ({_PIPELINE_TIMERS})",
                f"turn {key} off",
            )


def _on(content: Mapping[str, object], section: str) -> bool:
    block = content.get(section)
    return isinstance(block, Mapping) and block.get("enabled", False) is True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:3])


# Whether `import torch` in this Python will load the plugin: read from metadata, importing nothing.

_ENABLED_BY = "PERSEUS_CONFIG"
GROUP, NAME = "torch.backends", "perseus_ds"
SWITCH = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_TORCH_AT_LEAST = (2, 5)


VersionOf = Callable[[str], str | None]
"""What answers which version of a package is there."""


@dataclass(frozen=True, slots=True)
class HookStatus:
    """What decides whether the hook is armed; ``reason`` and ``remedy`` are empty when it is."""

    python: str
    entry_point: str | None
    autoload: str
    torch_version: str | None
    deepspeed_version: str | None
    reason: str
    remedy: str

    @property
    def armed(self) -> bool:
        """Whether training jobs of this Python load the plugin by themselves."""
        return not self.reason

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"armed": self.armed} | asdict(self)


def hook_status(
    environment: Mapping[str, str] = os.environ, *, version_of: VersionOf | None = None
) -> HookStatus:
    """Look at the installed packages and the environment of this Python."""
    found = next((point.value for point in entry_points(group=GROUP) if point.name == NAME), None)
    version_of = version_of or installed_version
    torch, deepspeed = version_of("torch"), version_of("deepspeed")
    autoload = environment.get(SWITCH, "1")
    trains = bool(deepspeed or version_of("megatron-core") or environment.get(_ENABLED_BY))
    reason, remedy = _obstacle(found, torch, autoload, trains=trains)
    return HookStatus(sys.executable, found, autoload, torch, deepspeed, reason, remedy)


def _obstacle(entry_point: str | None, torch: str | None, autoload: str, *, trains: bool) -> tuple[str, str]:
    if entry_point is None:
        return (
            f"no entry point {NAME} in group {GROUP} is installed",
            f"install the package into this Python: {sys.executable} -m pip install perseus_ds",
        )
    if torch is None:
        return "torch is not installed", "install torch 2.5 or newer"
    if _release(torch) < _TORCH_AT_LEAST:
        return (
            f"torch {torch} has no autoload of entry points",
            "upgrade to torch 2.5, or call perseus_ds.attach(engine) in the script",
        )
    if autoload == "0":
        return f"{SWITCH} is 0: torch loads no entry point", f"unset {SWITCH}"
    if not trains:
        return (
            "neither deepspeed nor megatron-core is installed",
            f"install the one that trains; for torch's own pipelining set {_ENABLED_BY}",
        )
    return "", ""


def installed_version(package: str) -> str | None:
    """The version of a package in this Python; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:2])
