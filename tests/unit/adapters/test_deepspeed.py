"""Facts read off engines of DeepSpeed, pipelines and ZeRO; the contract tests hooks."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from ranks import run_ranks
from torch import nn

from perseus_ds.adapters import deepspeed as adapter
from perseus_ds.adapters.deepspeed_settings import TESTED_DEEPSPEED, crashes_with_timers, raw_config
from perseus_ds.adapters.deepspeed_zero import FirstIteration, resize_order
from perseus_ds.adapters.deepspeed_zero import order_of as loop_order
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, Place
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import Kind, Order, Schedule, textbook, validate

# The engine's own streams in our words, against DeepSpeed's TrainSchedule itself.


def pipeline_of(microbatches: int, stages: int, *, tied: Collection[int] = ()) -> Schedule:
    """Join what every rank reads off its own schedule object."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    schedules = [TrainSchedule(microbatches, stages, stage) for stage in range(stages)]
    places = [place(stage, one, tied=stage in tied) for stage, one in enumerate(schedules)]
    return join_orders(places, name="deepspeed.TrainSchedule")


def place(stage: int, pipe_schedule: Any, *, tied: bool = False) -> Place:  # noqa: ANN401
    order = adapter.order_of(pipe_schedule, stage, without=() if tied else {Kind.REDUCE_TIED})
    return Place(stage, 0, order, {stage: 1}, {stage: 1.0}, "float32")


def computed(orders: Iterable[Order]) -> list[list[str]]:
    return [[str(i) for i in order if i.kind.is_computation] for order in orders]


@pytest.mark.parametrize("stages", range(1, 9))
def test_the_same_computations_as_the_textbook(stages: int) -> None:
    for microbatches in range(1, 13):
        schedule = pipeline_of(microbatches, stages)
        assert (schedule.stages, schedule.microbatches) == (stages, microbatches)
        expected = textbook("1f1b", stages=stages, microbatches=microbatches)
        assert computed(schedule.orders) == computed(expected.orders)


def test_a_stream_of_two_stages_reads_like_this() -> None:
    schedule = pipeline_of(2, 2)
    assert [" ".join(map(str, order)) for order in schedule.orders] == [
        "0L0 0F0 0SA0 0L1 0F1 0RG0 0SA1 0B0 0RG1 0B1 0AR0 0OS0",
        "1RA0 1L0 1F0 1B0 1SG0 1RA1 1L1 1F1 1B1 1SG1 1AR0 1OS0",
    ]


@pytest.mark.parametrize("tied", [[0, 3], []])
def test_only_tied_stages_reduce_tied_gradients(tied: list[int]) -> None:
    orders = pipeline_of(2, 4, tied=tied).orders
    reducing = [stage for stage, order in enumerate(orders) if Kind.REDUCE_TIED in {i.kind for i in order}]
    assert reducing == tied


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("more", [0, 1, 7])
def test_dualpipe_v_runs_two_model_stages_per_rank(ranks: int, more: int) -> None:
    """Against the order as the schedule room writes it, from the paper."""
    from deepspeed.runtime.pipe.schedule import DualPipeVSchedule

    microbatches = 2 * ranks + more
    ours = join_orders([place(r, DualPipeVSchedule(microbatches, ranks, r)) for r in range(ranks)], name="x")
    assert ours.stages == 2 * ranks
    expected = textbook("dualpipe-v-whole", stages=2 * ranks, microbatches=microbatches)
    assert computed(ours.orders) == computed(expected.orders)


def stream(text: str) -> Any:  # noqa: ANN401
    """A schedule object from text: ``F0 B0`` are ForwardPass and BackwardPass of buffer 0.

    An instruction's class name and its buffer are all that is read.
    """
    names = {"F": "ForwardPass", "B": "BackwardPass", "I": "BackwardOnlyPass", "W": "WeightPass"}
    names |= {"S": "OptimizerStep", "R": "ReferenceForward", "L": "LoadMicroBatch"}
    commands = [
        type(names[word[0]], (), {"buffer_id": int(word[1:])} if word[1:] else {})() for word in text.split()
    ]

    class Stream:
        micro_batches, stages, stage_id = 2, 1, 0

        def __init__(self, *, forward_only: bool = False) -> None:
            self.forward_only = forward_only

        def steps(self) -> Iterator[list[object]]:
            yield commands

    return Stream()


def read(text: str) -> str:
    return " ".join(map(str, adapter.order_of(stream(text), 0)))


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("F0 F1 B1 B0", "0F0 0F1 0B1 0B0"),  # GPipe's backwards come in reverse
        ("F0 F1 B0 F0 B1 B0", "0F0 0F1 0B0 0F2 0B1 0B2"),  # 1F1B uses a buffer again
        # in ZB-H1 some backwards are whole: the n-th weight gradient is not that of microbatch n
        ("F0 F1 B0 I1 F0 I0 W W", "0F0 0F1 0B0 0I1 0F2 0I2 0W1 0W2"),
    ],
)
def test_a_backward_is_that_of_the_forward_in_its_buffer(text: str, order: str) -> None:
    """And weight gradients follow input gradients in turn."""
    assert read(text) == order


def test_an_unknown_instruction_is_carried_under_its_name() -> None:
    assert read("R0 F0 B0 S") == "0X0 0F0 0B0 0OS0"
    assert adapter.unknown_of(stream("R0 F0 B0 S")) == ("ReferenceForward",)


@pytest.mark.parametrize(
    ("text", "trains"),
    [("F0 B0 S", True), ("F0 I0 W", True), ("L0 S", True), ("L0 F0", False), ("F0 R0", False), ("", False)],
)
def test_what_trains_is_what_goes_backward_or_steps(text: str, trains: bool) -> None:  # noqa: FBT001
    assert adapter.is_training(stream(text)) is trains


# What we rely on in DeepSpeed is checked by name, and a refusal says what is missing and what was tested.

COMMANDS = {type(name, (), {}): print for name in adapter.KINDS}


def engine(**changes: object) -> SimpleNamespace:
    """Everything that we need, under its name; a change to None takes it away."""
    content = dict.fromkeys(adapter.REQUIRED_NAMES, object()) | {"_INSTRUCTION_MAP": COMMANDS} | changes
    return SimpleNamespace(**{name: value for name, value in content.items() if value is not None})


def test_what_is_missing_is_named_with_its_use() -> None:
    assert adapter.check(whole := engine()) is whole
    for name, use in adapter.REQUIRED_NAMES.items():
        with pytest.raises(EngineError, match=f"DeepSpeed .*PipelineEngine.{name}, .*{use}") as refused:
            adapter.check(engine(**{name: None}))
        assert all(release in str(refused.value) for release in TESTED_DEEPSPEED)


def test_a_missing_instruction_is_named_but_for_the_later_ones_and_others_are_no_obstacle() -> None:
    def without(*names: str) -> dict[type, object]:
        return {kind: handler for kind, handler in COMMANDS.items() if kind.__name__ not in names}

    with pytest.raises(EngineError, match="SendGrad"):
        adapter.check(engine(_INSTRUCTION_MAP=without("SendGrad")))
    others = {type("ReferenceForward", (), {}): print}
    adapter.check(engine(_INSTRUCTION_MAP=without(*adapter.LATER) | others))


def test_the_configuration_is_what_the_user_wrote() -> None:
    content = {"perseus": {"enabled": True}}
    assert raw_config(SimpleNamespace(_config=SimpleNamespace(_param_dict=content))) == content
    assert raw_config(object()) == {}
    assert raw_config(SimpleNamespace(_config=SimpleNamespace(_param_dict=None))) == {}


@pytest.mark.parametrize(
    ("releases", "crash"),
    [(("0.18.3", "0.19.8", "0.19.8+cu128"), True), (("0.9.5", "0.18.2", "0.19.9", "0.20.0"), False)],
)
def test_releases_that_crash_with_their_own_timers(releases: Sequence[str], *, crash: bool) -> None:
    assert {crashes_with_timers(release) for release in releases} == {crash}


# A stage's weight.


def test_biases_norms_and_embeddings_do_not_multiply_and_a_tied_head_does() -> None:
    embedding, block = nn.Embedding(100, 8), nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(8))
    assert adapter.weight_of([embedding, block]) == 32
    assert adapter.weight_of([nn.Sequential(embedding, nn.Linear(2, 2))]) == 4
    assert adapter.weight_of([embedding]) == 0
    assert adapter.weight_of([partial(lambda tied, x: x, embedding), lambda x: x]) == 800


# What DeepSpeed's monitors are given, and when they are asked at all.

Row = tuple[str, float, int]


def monitored_engine(monitor: object, *, rank: int = 0, steps: object = 4) -> Any:  # noqa: ANN401
    return SimpleNamespace(global_rank=rank, global_samples=8, monitor=monitor, steps_per_print=lambda: steps)


def test_scalars_stand_beside_deepspeeds_own() -> None:
    rows: list[Row] = []
    engine = monitored_engine(SimpleNamespace(enabled=True, write_events=rows.extend))
    adapter.EngineAdapter(engine).write_scalars({"plan": 3, "slack_s": 0.5})
    assert rows == [("Perseus/plan", 3, 8), ("Perseus/slack_s", 0.5, 8)]


ON, OFF = (SimpleNamespace(enabled=enabled) for enabled in (True, False))


@pytest.mark.parametrize(
    ("monitor", "rank", "steps", "every"),
    [
        (ON, 0, 4, 4),
        (ON, 0, None, 10),
        (ON, 0, 0, 10),
        (None, 0, 4, None),
        (OFF, 0, 4, None),
        (ON, 1, 4, None),
    ],
    ids=["as the engine prints", "never", "0", "no monitor", "off", "rank 1"],
)
def test_scalars_keep_the_engines_pace(monitor: object, rank: int, steps: object, every: int | None) -> None:
    engine = monitored_engine(monitor, rank=rank, steps=steps)
    assert adapter.EngineAdapter(engine).scalars_every == every


# Ranks that exchange tokens in layers of experts.


def coupled(rank: int) -> list[tuple[int, ...]]:
    """Findings of ranks with all experts on each, spread over both, and nested in a model with none above."""
    alone, both = dist.new_group([0]), dist.new_group([0, 1])
    layers = [nn.Linear(1, 1) for _ in range(3)]
    if rank == 0:
        layers[0].ep_group = alone
    layers[1].ep_group = both
    return [
        adapter.coupled_by_experts(one)
        for one in (layers[0], layers[1], nn.Sequential(nn.Tanh(), nn.Sequential(layers[1], layers[2])))
    ]


def test_experts_on_several_ranks_couple_these_ranks() -> None:
    for said in run_ranks(2, coupled):
        assert said.value == [(), (0, 1), (0, 1)]


# The order of a user's loop on ZeRO: numbered as it ran, refused where it cannot be distinguished.

F, B, AR, OS = Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS, Kind.STEP


def test_the_nth_of_a_kind_is_that_of_microbatch_n() -> None:
    order = loop_order([F, B, AR, F, B, AR, OS])
    assert " ".join(map(str, order)) == "0F0 0B0 0AR0 0F1 0B1 0AR1 0OS0"
    validate(Schedule("zero-2", 2, (order,)))


def test_a_microbatch_that_was_skipped_is_none_of_the_order() -> None:
    for kinds in ([F, F, B, F, B, AR, OS], [F, B, F, F, F, B, AR, OS]):
        assert loop_order(kinds) == loop_order([F, B] * 2 + [AR, OS])


@pytest.mark.parametrize("kinds", [[F, F, B, OS], [F, F, B, F, F, B, OS], [B, OS], [OS], []])
def test_a_loop_that_cannot_be_told_apart_is_refused(kinds: list[Kind]) -> None:
    with pytest.raises(EngineError, match="forwards and"):
        loop_order(kinds)


def test_an_iteration_that_broke_is_noted_anew() -> None:
    first = FirstIteration()
    for kinds in ([F], [F, B, OS]):
        first.iteration_begins(Batch(1))
        for kind in kinds:
            first.before(kind)
            first.after(kind)
    assert not first.ended
    first.iteration_ends()
    assert first.kinds == [F, B, OS]


def test_the_loop_over_another_number_of_microbatches_is_the_same_loop() -> None:
    always, at_the_end = [F, B, AR] * 2 + [OS], [F, B, F, B, AR, OS]
    assert resize_order(loop_order(always), 3) == loop_order([F, B, AR] * 3 + [OS])
    assert resize_order(loop_order(at_the_end), 4) == loop_order([F, B] * 4 + [AR, OS])
    assert resize_order(loop_order(at_the_end), 1) == loop_order([F, B, AR, OS])
    assert resize_order(loop_order(always), 2) == loop_order(always)
    with pytest.raises(EngineError, match="ran 1"):
        resize_order(loop_order([F, B, AR, OS]), 2)
