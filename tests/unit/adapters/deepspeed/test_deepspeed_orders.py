"""The engine's own streams in our words, against DeepSpeed's TrainSchedule itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perseus_ds.adapters.deepspeed.orders import order_of, schedule_of
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Kind, textbook


def real(microbatches: int, stages: int) -> Any:  # noqa: ANN401
    from deepspeed.runtime.pipe.schedule import TrainSchedule  # noqa: PLC0415

    return TrainSchedule(microbatches, stages, 0)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_the_same_computations_as_the_textbook(stages: int, microbatches: int) -> None:
    schedule = schedule_of(real(microbatches, stages), tied_stages=())
    assert (schedule.stages, schedule.microbatches) == (stages, microbatches)
    expected = textbook("1f1b", stages=stages, microbatches=microbatches)
    for ours, theirs in zip(schedule.orders, expected.orders, strict=True):
        assert [str(i) for i in ours if i.kind.is_computation] == [str(i) for i in theirs]


def test_a_stream_of_two_stages_reads_like_this() -> None:
    schedule = schedule_of(real(2, 2), tied_stages=())
    assert [" ".join(map(str, order)) for order in schedule.orders] == [
        "0L0 0F0 0SA0 0L1 0F1 0RG0 0SA1 0B0 0RG1 0B1 0AR0 0OS0",
        "1RA0 1L0 1F0 1B0 1SG0 1RA1 1L1 1F1 1B1 1SG1 1AR0 1OS0",
    ]


def test_only_tied_stages_reduce_tied_gradients() -> None:
    schedule = schedule_of(real(2, 4), tied_stages={0, 3})
    tied = [
        stage for stage, order in enumerate(schedule.orders) if any(i.kind is Kind.REDUCE_TIED for i in order)
    ]
    assert tied == [0, 3]
    none = schedule_of(real(2, 4), tied_stages=())
    assert not any(i.kind is Kind.REDUCE_TIED for order in none.orders for i in order)


def test_every_stage_ends_with_reduction_and_step() -> None:
    for order in schedule_of(real(3, 3), tied_stages=()).orders:
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
