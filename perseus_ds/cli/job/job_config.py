"""What in a DeepSpeed configuration would keep a job from training with the plugin, before it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.adapters.deepspeed_engine.facts import settings_of
from perseus_ds.config import (
    ENABLED_BY_FILE,
    PerseusConfig,
    given_config,
    load,
    parse,
    read_block,
    read_deepspeed_json,
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
    name = given_config(source).name
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
