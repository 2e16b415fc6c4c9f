"""The engine's own streams in our words, against DeepSpeed's TrainSchedule itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from perseus_ds.adapters.deepspeed import is_training, order_of, unknown_of
from perseus_ds.errors import EngineError
from perseus_ds.runtime import place as joining
from perseus_ds.runtime.adapter import Place
from perseus_ds.schedule import Kind, Schedule, textbook


def joined(microbatches: int, stages: int, *, tied: Collection[int] = (), replicas: int = 1) -> Schedule:
    """What every rank says of its own schedule object, put together."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    places = [
        place(stage, TrainSchedule(microbatches, stages, stage), tied=stage in tied, replica=replica)
        for replica in range(replicas)
        for stage in range(stages)
    ]
    return joining.joined(places, name="deepspeed.TrainSchedule")


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


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_dualpipe_v_runs_two_model_stages_per_rank(ranks: int) -> None:
    """Against the order as the schedule room writes it, from the paper."""
    from deepspeed.runtime.pipe.schedule import DualPipeVSchedule

    microbatches = 2 * ranks + 1
    places = [place(r, DualPipeVSchedule(microbatches, ranks, r), tied=False) for r in range(ranks)]
    ours = joining.joined(places, name="x")
    textbooks = textbook("dualpipe-v-whole", stages=2 * ranks, microbatches=microbatches)
    assert ours.stages == 2 * ranks
    for order, expected in zip(ours.orders, textbooks.orders, strict=True):
        assert [str(i) for i in order if i.kind.is_computation] == [
            str(i) for i in expected if i.kind.is_computation
        ]


class Command:
    """An instruction: its class's name and its buffer are all that is read."""

    def __init__(self, buffer_id: int | None = None) -> None:
        if buffer_id is not None:
            self.buffer_id = buffer_id


def stream(text: str) -> Any:  # noqa: ANN401
    """A schedule object from text: ``F0 B0`` are ForwardPass and BackwardPass of buffer 0."""
    names = {"F": "ForwardPass", "B": "BackwardPass", "I": "BackwardOnlyPass", "W": "WeightPass"}
    names |= {"S": "OptimizerStep", "R": "ReferenceForward", "L": "LoadMicroBatch"}
    commands = [
        type(names[word[0]], (Command,), {})(int(word[1:]) if word[1:] else None) for word in text.split()
    ]

    class Stream:
        micro_batches, stages, stage_id = 2, 1, 0

        def __init__(self, *, forward_only: bool = False) -> None:
            self.forward_only = forward_only

        def steps(self) -> Iterator[list[object]]:
            yield commands

    return Stream()


def read(text: str) -> str:
    return " ".join(map(str, order_of(stream(text), 0)))


def test_a_backward_is_that_of_the_forward_in_its_buffer() -> None:
    assert read("F0 F1 B1 B0") == "0F0 0F1 0B1 0B0", "GPipe's backwards come in reverse"
    assert read("F0 F1 B0 F0 B1 B0") == "0F0 0F1 0B0 0F2 0B1 0B2", "1F1B uses a buffer again"


def test_weight_gradients_follow_input_gradients_in_turn() -> None:
    """As in ZB-H1, where some backwards are whole: the n-th weight gradient is not that of microbatch n."""
    assert read("F0 F1 B0 I1 F0 I0 W W") == "0F0 0F1 0B0 0I1 0F2 0I2 0W1 0W2"


def test_an_unknown_instruction_is_carried_under_its_name() -> None:
    schedule = stream("R0 F0 B0 S")
    assert read("R0 F0 B0 S") == "0X0 0F0 0B0 0OS0"
    assert unknown_of(schedule) == ("ReferenceForward",)


@pytest.mark.parametrize(
    ("text", "trains"),
    [("F0 B0 S", True), ("F0 I0 W", True), ("L0 S", True), ("L0 F0", False), ("F0 R0", False), ("", False)],
)
def test_what_trains_is_what_goes_backward_or_steps(text: str, trains: bool) -> None:  # noqa: FBT001
    assert is_training(stream(text)) is trains


def test_replicas_say_the_same_of_one_pipeline() -> None:
    assert joined(3, 2, replicas=2) == joined(3, 2)


def test_ranks_of_one_stage_that_run_different_schedules_are_refused() -> None:
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    places = [place(0, TrainSchedule(2, 1, 0)), place(0, TrainSchedule(3, 1, 0), replica=1)]
    with pytest.raises(EngineError, match="stage 0"):
        joining.joined(places, name="x")
