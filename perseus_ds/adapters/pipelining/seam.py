"""Every name of torch.distributed.pipelining that we rely on and no one promised us, checked before use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

import torch

from perseus_ds.adapters.required_names import Release, RequiredName
from perseus_ds.errors import UnsupportedEngineError

TESTED_TORCH = ("2.13.0",)
"""Releases on which all seven schedules were run with us attached."""

OLDEST_TORCH = (2, 13)

Handler = Callable[..., object]


class ComputationType(Protocol):
    """What we use of ``schedules._ComputationType``."""

    name: str


class Action(Protocol):
    """What we use of ``schedules._Action``, an instruction of the schedule's own representation."""

    stage_index: int
    computation_type: ComputationType
    microbatch_index: int | None
    sub_actions: Sequence[Action] | None


class Stage(Protocol):
    """What we use of ``torch.distributed.pipelining.PipelineStage``."""

    submod: torch.nn.Module
    device: torch.device
    stage_index: int
    num_stages: int
    group_rank: int
    group_size: int
    is_last: bool
    forward_one_chunk: Handler
    backward_one_chunk: Handler
    backward_weight_one_chunk: Handler
    perform_reduce_grad: Handler


class PipelineSchedule(Protocol):
    """What we use of ``schedules._PipelineSchedule``."""

    _n_microbatches: int
    _has_backward: bool
    _maybe_compute_loss: Handler
    step: Handler


SCHEDULE_NAMES = (
    RequiredName("step", "knowing when an iteration starts and ends"),
    RequiredName("_n_microbatches", "recognising the job"),
    RequiredName("_has_backward", "distinguishing training from evaluation"),
    RequiredName("_maybe_compute_loss", "knowing when the last stage's forward ends"),
)
STAGE_NAMES = (
    RequiredName("forward_one_chunk", "running around every forward"),
    RequiredName("backward_one_chunk", "running around every backward"),
    RequiredName("backward_weight_one_chunk", "running around every weight gradient"),
    RequiredName("perform_reduce_grad", "knowing where replicas wait for each other"),
    RequiredName("submod", "recognising the job"),
    RequiredName("device", "knowing where it computes"),
    RequiredName("stage_index", "its place in the model"),
    RequiredName("num_stages", "the model's depth"),
    RequiredName("group_rank", "this rank's place in the pipeline"),
    RequiredName("group_size", "the pipeline's width"),
    RequiredName("is_last", "knowing who computes the loss"),
)


def check(schedule: object) -> PipelineSchedule:
    """Return the schedule with its type, if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, the torch found and those tested.
    """
    release = Release(f"torch {torch.__version__}", [f"torch {', '.join(TESTED_TORCH)}"])
    if _numbers(torch.__version__) < OLDEST_TORCH:
        raise release.unsupported("its pipelining is older than any that was tested")
    release.check(schedule, SCHEDULE_NAMES, where=type(schedule).__name__)
    found = cast("PipelineSchedule", schedule)
    stages = stages_of(found)
    if not stages:
        raise release.unsupported(f"{type(schedule).__name__} has neither _stages nor _stage")
    for stage in stages:
        release.check(stage, STAGE_NAMES, where=type(stage).__name__)
    handled = getattr(schedule, "_comp_type_to_function_map", {})
    if handled:
        names = ", ".join(sorted(kind.name for kind in handled))
        raise UnsupportedEngineError(
            f"custom functions are registered for {names}: they run in place of the stages' own methods",
            hint="train without register_custom_function, or without perseus_ds",
        )
    return found


def stages_of(schedule: PipelineSchedule) -> Sequence[Stage]:
    """Return the model stages that this rank holds."""
    several = getattr(schedule, "_stages", None)
    if several is not None:
        return cast("Sequence[Stage]", several)
    return [cast("Stage", one) for one in [getattr(schedule, "_stage", None)] if one is not None]


def splits_rows(schedule: PipelineSchedule) -> bool:
    """Whether a batch is split along its first dimension: nobody reported otherwise."""
    given = (getattr(schedule, name, None) for name in ("_args_chunk_spec", "_kwargs_chunk_spec"))
    return all(spec is None for spec in given)


def actions_of(schedule: PipelineSchedule) -> Sequence[Sequence[Action]] | None:
    """Return what all ranks of the pipeline run, as torch wrote it down; None where it did not."""
    actions = getattr(schedule, "pipeline_order_with_comms", None)
    return None if actions is None else [actions[rank] for rank in sorted(actions)]


def classes_of(host: object) -> Iterator[str]:
    """Name the classes of an object, its own first."""
    return (kind.__name__ for kind in type(host).__mro__)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2])
