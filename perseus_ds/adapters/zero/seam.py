"""Every name of ``DeepSpeedEngine`` that we rely on and that no one promised us, checked before use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
import torch.distributed as dist

from perseus_ds.adapters.deepspeed_engine.facts import deepspeed_release
from perseus_ds.adapters.required_names import RequiredName
from perseus_ds.errors import UnsupportedEngineError

ZERO_GATHERS = 3
"""The ZeRO stage from which on parameters are gathered in every forward and backward."""


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
    if why := _why_not(engine):
        raise UnsupportedEngineError(why, hint="train without the perseus block")
    found = cast("Engine", engine)
    if waits_in_backward(found) and not _waits_in_the_last_alone(found):
        raise UnsupportedEngineError(
            f"ZeRO-{int(found.zero_optimization_stage())} with overlap_comm: every backward waits for the "
            "other replicas, so that neither its own duration nor a slow replica can be measured",
            hint='"overlap_comm": false, or ZeRO-1 with two or more gradient accumulation steps',
        )
    return found


def waits_in_backward(engine: Engine) -> bool:
    """Whether replicas wait for each other inside backwards: the stream waits for the bucket before.

    Source: deepspeed/runtime/zero/stage_1_and_2.py@0.19.8, ``average_tensor``.
    """
    overlaps = getattr(engine, "zero_overlap_comm", None)
    meets = getattr(engine, "dp_world_size", 1) > 1
    partitions = 0 < engine.zero_optimization_stage() < ZERO_GATHERS
    return meets and partitions and callable(overlaps) and bool(overlaps())


def _waits_in_the_last_alone(engine: Engine) -> bool:
    """ZeRO-1 reduces at the boundary of gradient accumulation, ZeRO-2 in every microbatch."""
    return engine.zero_optimization_stage() == 1 and engine.gradient_accumulation_steps() > 1


def _why_not(engine: object) -> str:
    if getattr(engine, "zenflow", False):
        return "ZenFlow updates weights beside the iteration, so that no instruction can be separated from it"
    if any(kind.__name__ == "DeepSpeedHybridEngine" for kind in type(engine).__mro__):
        return "the hybrid engine generates text between its iterations, which is not planned"
    compiled = getattr(engine, "is_deepcompile_enabled", None)
    if callable(compiled) and compiled():
        return "DeepCompile moves the reductions into the compiled graph, past every hook"
    return ""
