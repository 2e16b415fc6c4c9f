"""The engine's own instruction streams, in our words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from perseus_ds.adapters.deepspeed.seam import KINDS, PipeSchedule
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.adapter import Place
from perseus_ds.schedule import Instruction, Kind, Order, Schedule, validate


def schedule_of(places: Iterable[Place], *, name: str, microbatches: int) -> Schedule:
    """Join what every rank said that it runs; replicas of one pipeline run the same.

    Raises:
        UnsupportedEngineError: ranks of one stage that run different streams.
        InvalidScheduleError: streams that cannot run to their end.
    """
    orders: dict[int, Order] = {}
    for place in places:
        if orders.setdefault(place.pipeline_rank, place.order) != place.order:
            raise UnsupportedEngineError(
                f"the ranks of stage {place.pipeline_rank} run different schedules",
                hint="every replica has to run the same one",
            )
    schedule = Schedule(name, microbatches, tuple(orders[rank] for rank in sorted(orders)))
    validate(schedule)
    return schedule


def order_of(pipe_schedule: PipeSchedule, stage: int, *, without: Collection[Kind] = ()) -> Order:
    """Number one stage's commands: the n-th of a kind works on microbatch n (1F1B, FIFO).

    ``without`` are kinds that do nothing on this stage.

    Raises:
        UnsupportedEngineError: an instruction that we do not know.
    """
    return tuple(one for one in _numbered(pipe_schedule, stage) if one.kind not in without)


def _numbered(pipe_schedule: PipeSchedule, stage: int) -> Iterator[Instruction]:
    seen: Counter[Kind] = Counter()
    for step in cast("Sequence[Iterable[object]]", pipe_schedule.steps()):
        for command in step:
            name = type(command).__name__
            if name not in KINDS:
                raise UnsupportedEngineError(f"the schedule has an instruction {name} that we do not know")
            kind = KINDS[name]
            yield Instruction(stage, kind, seen[kind])
            seen[kind] += 1
