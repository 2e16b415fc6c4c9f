"""The engine's own streams in our words, against DeepSpeed's TrainSchedule itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from perseus_ds.adapters.deepspeed.orders import order_of, schedule_of
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.adapter import Place
from perseus_ds.schedule import Kind, Schedule, textbook


def joined(microbatches: int, stages: int, *, tied: Collection[int] = (), replicas: int = 1) -> Schedule:
    """What every rank says of its own schedule object, put together."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule  # noqa: PLC0415

    places = [
        place(stage, TrainSchedule(microbatches, stages, stage), tied=stage in tied, replica=replica)
        for replica in range(replicas)
        for stage in range(stages)
    ]
    return schedule_of(places, name="deepspeed.TrainSchedule", microbatches=microbatches)


def place(stage: int, pipe_schedule: Any, *, tied: bool = True, replica: int = 0) -> Place:  # noqa: ANN401
    order = order_of(pipe_schedule, stage, without=() if tied else {Kind.REDUCE_TIED})
    return Place(stage, replica, order, {stage: 1}, {stage: 1.0}, "float32")


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_the_same_computations_as_the_textbook(stages: int, microbatches: int) -> None:
    schedule = joined(microbatches, stages)
    assert (schedule.stages, schedule.microbatches) == (stages, microbatches)
    expected = textbook("1f1b", stages=stages, microbatches=microbatches)
    for ours, theirs in zip(schedule.orders, expected.orders, strict=True):
        assert [str(i) for i in ours if i.kind.is_computation] == [str(i) for i in theirs]


def test_a_stream_of_two_stages_reads_like_this() -> None:
    schedule = joined(2, 2)
    assert [" ".join(map(str, order)) for order in schedule.orders] == [
        "0L0 0F0 0SA0 0L1 0F1 0RG0 0SA1 0B0 0RG1 0B1 0AR0 0OS0",
        "1RA0 1L0 1F0 1B0 1SG0 1RA1 1L1 1F1 1B1 1SG1 1AR0 1OS0",
    ]


def test_only_tied_stages_reduce_tied_gradients() -> None:
    schedule = joined(2, 4, tied={0, 3})
    tied = [
        stage for stage, order in enumerate(schedule.orders) if any(i.kind is Kind.REDUCE_TIED for i in order)
    ]
    assert tied == [0, 3]
    none = joined(2, 4)
    assert not any(i.kind is Kind.REDUCE_TIED for order in none.orders for i in order)


def test_every_stage_ends_with_reduction_and_step() -> None:
    for order in joined(3, 3).orders:
        assert [i.kind for i in order[-2:]] == [Kind.REDUCE_GRADS, Kind.STEP]


class SplitBackwardPass:
    """An instruction of the future."""


class ScheduleOfTheFuture:
    def __init__(self, micro_batches: int, stages: int, stage_id: int) -> None:
        self.micro_batches, self.stages = micro_batches, stages

    def steps(self) -> Iterator[list[object]]:
        yield [SplitBackwardPass()]


def test_an_unknown_instruction_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedEngineError, match="an instruction SplitBackwardPass that we do not know"):
        order_of(ScheduleOfTheFuture(1, 1, 0), 0)


def test_replicas_say_the_same_of_one_pipeline() -> None:
    assert joined(3, 2, replicas=2) == joined(3, 2)


def test_ranks_of_one_stage_that_run_different_schedules_are_refused() -> None:
    from deepspeed.runtime.pipe.schedule import TrainSchedule  # noqa: PLC0415

    places = [place(0, TrainSchedule(2, 1, 0)), place(0, TrainSchedule(3, 1, 0), replica=1)]
    with pytest.raises(UnsupportedEngineError, match="the ranks of stage 0 run different schedules"):
        schedule_of(places, name="x", microbatches=2)
