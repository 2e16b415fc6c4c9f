"""The engine's own instruction streams, in our words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from perseus_ds.adapters.deepspeed.seam import KINDS, PipeSchedule
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Instruction, Kind, Order, Schedule, validate


def schedule_of(pipe_schedule: PipeSchedule, *, tied_stages: Iterable[int]) -> Schedule:
    """Generate every stage's stream from one stage's schedule object: schedules are pure Python.

    ``tied_stages`` are those with tied weights; on all others ReduceTiedGrads does nothing.

    Raises:
        UnsupportedEngineError: an instruction that we do not know.
        InvalidScheduleError: streams that cannot run to their end.
    """
    kind, microbatches, stages = type(pipe_schedule), pipe_schedule.micro_batches, pipe_schedule.stages
    tied = frozenset(tied_stages)
    orders = tuple(
        _without_idle_reductions(order_of(kind(microbatches, stages, stage), stage), tied)
        for stage in range(stages)
    )
    schedule = Schedule(f"deepspeed.{kind.__name__}", microbatches, orders)
    validate(schedule)
    return schedule


def order_of(pipe_schedule: PipeSchedule, stage: int) -> Order:
    """Number one stage's commands: the n-th of a kind works on microbatch n (1F1B, FIFO)."""
    return tuple(_numbered(pipe_schedule, stage))


def _numbered(pipe_schedule: PipeSchedule, stage: int) -> Iterator[Instruction]:
    seen: Counter[Kind] = Counter()
    for step in cast("Iterable[Iterable[object]]", pipe_schedule.steps()):
        for command in step:
            name = type(command).__name__
            if name not in KINDS:
                raise UnsupportedEngineError(f"the schedule has an instruction {name} that we do not know")
            kind = KINDS[name]
            yield Instruction(stage, kind, seen[kind])
            seen[kind] += 1


def _without_idle_reductions(order: Order, tied: frozenset[int]) -> Order:
    return tuple(i for i in order if i.kind is not Kind.REDUCE_TIED or i.stage in tied)
