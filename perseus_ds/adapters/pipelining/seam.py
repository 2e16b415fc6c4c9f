"""Every name of torch.distributed.pipelining that we rely on and no one promised us, checked before use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch

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


@dataclass(frozen=True, slots=True)
class Need:
    """One name, and what for."""

    name: str
    use: str


SCHEDULE_NEEDS = (
    Need("step", "knowing when an iteration starts and ends"),
    Need("_n_microbatches", "recognising the job"),
    Need("_has_backward", "telling training from evaluation"),
    Need("_maybe_compute_loss", "knowing when the last stage's forward ends"),
)
STAGE_NEEDS = (
    Need("forward_one_chunk", "running around every forward"),
    Need("backward_one_chunk", "running around every backward"),
    Need("backward_weight_one_chunk", "running around every weight gradient"),
    Need("perform_reduce_grad", "knowing where replicas wait for each other"),
    Need("submod", "recognising the job"),
    Need("device", "knowing where it computes"),
    Need("stage_index", "its place in the model"),
    Need("num_stages", "the model's depth"),
    Need("group_rank", "this rank's place in the pipeline"),
    Need("group_size", "the pipeline's width"),
    Need("is_last", "knowing who computes the loss"),
)


def check(schedule: object) -> PipelineSchedule:
    """Return the schedule with its type, if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, the torch found and those tested.
    """
    if _release(torch.__version__) < OLDEST_TORCH:
        raise _unsupported("its pipelining is older than any that was tested")
    _check_names(schedule, SCHEDULE_NEEDS)
    found = cast("PipelineSchedule", schedule)
    stages = stages_of(found)
    if not stages:
        raise _unsupported(f"{type(schedule).__name__} has neither _stages nor _stage")
    for stage in stages:
        _check_names(stage, STAGE_NEEDS)
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


def actions_of(schedule: PipelineSchedule) -> Sequence[Sequence[Action]] | None:
    """Return what all ranks of the pipeline run, as torch wrote it down; None where it did not."""
    actions = getattr(schedule, "pipeline_order_with_comms", None)
    return None if actions is None else [actions[rank] for rank in sorted(actions)]


def classes_of(host: object) -> Iterator[str]:
    """Name the classes of an object, its own first."""
    return (kind.__name__ for kind in type(host).__mro__)


def _check_names(holder: object, needs: Sequence[Need]) -> None:
    for need in needs:
        if not hasattr(holder, need.name):
            raise _unsupported(f"{type(holder).__name__}.{need.name}, used for {need.use}, is not there")


def _unsupported(what: str) -> UnsupportedEngineError:
    return UnsupportedEngineError(
        f"torch {torch.__version__}: {what}", hint=f"tested: torch {', '.join(TESTED_TORCH)}"
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2])
