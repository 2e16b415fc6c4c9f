"""Every name of ``DeepSpeedEngine`` that we rely on and that no one promised us, checked before use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
import torch.distributed as dist

from perseus_ds.adapters.deepspeed_engine.facts import EngineSettings, deepspeed_release
from perseus_ds.adapters.required_names import RequiredName


class Engine(Protocol):
    """What we use of ``deepspeed.runtime.engine.DeepSpeedEngine``."""

    training: bool
    module: torch.nn.Module
    global_rank: int
    mp_world_size: int
    data_parallel_group: dist.ProcessGroup
    forward: Callable[..., object]

    def gradient_accumulation_steps(self) -> int:
        """Microbatches of one optimizer step."""

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the present microbatch is the last of its step."""

    def zero_optimization_stage(self) -> int:
        """0 to 3."""

    def train_micro_batch_size_per_gpu(self) -> int:
        """Samples of one microbatch."""


REQUIRED_NAMES = (
    RequiredName("forward", "running around forwards"),
    RequiredName("backward", "running around backwards"),
    RequiredName("allreduce_gradients", "knowing where replicas wait for each other"),
    RequiredName("_take_model_step", "running around the optimizer"),
    RequiredName("step", "knowing when an iteration ends"),
    RequiredName("is_gradient_accumulation_boundary", "knowing when an iteration ends"),
    RequiredName("gradient_accumulation_steps", "recognising changed batches"),
    RequiredName("zero_optimization_stage", "knowing where replicas wait for each other"),
    RequiredName("train_micro_batch_size_per_gpu", "recognising the job"),
    RequiredName("data_parallel_group", "knowing the replica"),
    RequiredName("mp_world_size", "recognising the job"),
    RequiredName("module", "recognising the job"),
)


def check(engine: object) -> Engine:
    """Return the engine with its type, if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, or what cannot be served, and why.
    """
    deepspeed_release().check(engine, REQUIRED_NAMES, where="DeepSpeedEngine")
    found = cast("Engine", engine)
    if (refusal := settings_of_engine(found).refusal()) is not None:
        raise refusal
    return found


def settings_of_engine(engine: Engine) -> EngineSettings:
    """Return the settings that decide whether this engine can be served."""
    overlaps = getattr(engine, "zero_overlap_comm", None)
    compiled = getattr(engine, "is_deepcompile_enabled", None)
    return EngineSettings(
        zero_stage=int(engine.zero_optimization_stage()),
        overlap_comm=callable(overlaps) and bool(overlaps()),
        replicas=getattr(engine, "dp_world_size", 1),
        accumulation_steps=engine.gradient_accumulation_steps(),
        zenflow=bool(getattr(engine, "zenflow", False)),
        hybrid_engine=any(kind.__name__ == "DeepSpeedHybridEngine" for kind in type(engine).__mro__),
        deepcompile=callable(compiled) and bool(compiled()),
    )
