"""Read an engine's configuration and DeepSpeed's release, without importing DeepSpeed or torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import cast

from perseus_ds.config import ENABLED_BY_FILE, is_enabled
from perseus_ds.errors import EngineError

TESTED_DEEPSPEED = ("0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")
"""Releases on which engines, with a pipeline and without, were run with us attached."""


def deepspeed_version() -> str:
    """The release that is imported, which a PYTHONPATH can make another than the installed one."""
    imported = getattr(sys.modules.get("deepspeed"), "__version__", None)
    return str(imported).strip() if imported else version("deepspeed")


def crashes_with_timers(release: str) -> bool:
    """Return whether this DeepSpeed ends every pipeline job that has its own timers on (0.18.3 to 0.19.8)."""
    numbers = tuple(int(part) for part in release.split("+", maxsplit=1)[0].split(".")[:3] if part.isdigit())
    return (0, 18, 3) <= numbers <= (0, 19, 8)


def raw_config(engine: object) -> Mapping[str, object]:
    """The DeepSpeed configuration as the user wrote it; empty where the engine keeps none.

    An unknown top-level block passes DeepSpeed silently and stays in ``_config._param_dict``.
    """
    content = getattr(getattr(engine, "_config", None), "_param_dict", None)
    return cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}


def is_switched_on(section: object) -> bool:
    """Return whether a section of the configuration has ``"enabled": true``."""
    return isinstance(section, dict) and section.get("enabled", False) is True


ZERO_GATHERS = 3
"""The ZeRO stage from which on parameters are gathered in every forward and backward."""

_LEAST_WITHOUT_PIPELINE = 2  # DeepSpeed refuses a pipeline under these ZeRO stages
_ON = frozenset({"true", "1", "yes", "on", "t", "y"})  # as pydantic reads a bool


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine without a pipeline that decide whether it can be served.

    An engine states them in training; `read_settings` reads them from a JSON before it.
    ``accumulation_steps`` is None where only the launch decides it.
    """

    zero_stage: int = 0
    overlap_comm: bool = False
    replicas: int = 1
    accumulation_steps: int | None = None
    zenflow: bool = False
    hybrid_engine: bool = False
    deepcompile: bool = False

    @property
    def never_a_pipeline(self) -> bool:
        """True if DeepSpeed would refuse to make a pipeline engine with these."""
        return self.zero_stage >= _LEAST_WITHOUT_PIPELINE

    @property
    def waits_in_backward(self) -> bool:
        """True if replicas wait for each other inside backwards: the stream waits for the bucket before.

        Source: deepspeed/runtime/zero/stage_1_and_2.py@0.19.8, ``average_tensor``.
        """
        return self.replicas > 1 and 0 < self.zero_stage < ZERO_GATHERS and self.overlap_comm

    def refusal(self) -> EngineError | None:
        """Return why such an engine is not served in training; None where it is."""
        if self.zenflow:
            return _refuse(
                "ZenFlow updates weights beside the iteration: no instruction can be separated from it"
            )
        if self.hybrid_engine:
            return _refuse("the hybrid engine generates text between its iterations, which is not planned")
        if self.deepcompile:
            return _refuse("DeepCompile moves the reductions into the compiled graph, past every hook")
        # ZeRO-1 reduces at the boundary of gradient accumulation, ZeRO-2 in every microbatch.
        in_every_one = self.zero_stage > 1 or self.accumulation_steps == 1
        if self.waits_in_backward and in_every_one:
            return EngineError(
                f"ZeRO-{self.zero_stage} with overlap_comm and more than one replica: every backward waits "
                "for the other replicas, so that neither its own duration nor a slow replica can be measured",
                hint='"overlap_comm": false, or ZeRO-1 with two or more gradient accumulation steps',
            )
        return None


def _refuse(why: str) -> EngineError:
    return EngineError(why, hint="train without the perseus block")


def read_settings(content: Mapping[str, object], *, replicas: int) -> EngineSettings:
    """Read them from a DeepSpeed configuration, with the defaults of DeepSpeed 0.19.8 for what it leaves out.

    "auto" is the default too, as in DeepSpeed; a value that DeepSpeed refuses is left for it to refuse.
    """
    zero = content.get("zero_optimization")
    stage = int(_is_on(zero))  # the old form: a bool
    section = zero if isinstance(zero, Mapping) else {}
    if str(section.get("stage", "")).isdecimal():
        stage = int(str(section["stage"]))
    return EngineSettings(
        zero_stage=stage,
        overlap_comm=_is_on(section.get("overlap_comm", stage == ZERO_GATHERS)),
        replicas=replicas,
        accumulation_steps=_accumulation_steps(content),
        zenflow=isinstance(section.get("zenflow"), Mapping),
        hybrid_engine=_is_on(_member(content, "hybrid_engine", "enabled")),
        deepcompile=_is_on(_member(content, "compile", "deepcompile")),
    )


def _accumulation_steps(content: Mapping[str, object]) -> int | None:
    steps = content.get("gradient_accumulation_steps")
    if isinstance(steps, int):
        return steps
    sizes = "train_batch_size", "train_micro_batch_size_per_gpu"
    # With one of the sizes alone DeepSpeed takes one step; with both the number of ranks decides.
    return 1 if steps is None and sum(content.get(name) is not None for name in sizes) == 1 else None


def _member(content: Mapping[str, object], section: str, key: str) -> object:
    block = content.get(section)
    return block.get(key) if isinstance(block, Mapping) else None


def _is_on(value: object) -> bool:
    return not isinstance(value, Mapping) and str(value).strip().lower() in _ON


def is_pipeline(engine: object) -> bool:
    """Return whether an engine runs a pipeline: DeepSpeed's own class for it, or one below it."""
    return any(kind.__name__ == "PipelineEngine" for kind in type(engine).__mro__)


def read_request(engine: object, config: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return an engine's configuration where it is to be served, else None.

    The request is made in code, in the engine's JSON, or by ``PERSEUS_CONFIG``: without the key ``perseus``.
    """
    content = dict(raw_config(engine))
    if config is not None:
        content["perseus"] = {"enabled": True, **config}
    return content if is_enabled(content) or os.environ.get(ENABLED_BY_FILE) else None


def tunes_itself(content: Mapping[str, object]) -> bool:
    """Return whether DeepSpeed's autotuning is on, which measures the job itself."""
    return is_switched_on(content.get("autotuning"))
