"""The identity of a job: reports and orders of all ranks joined into one, and coupled sets of replicas."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.nn import Linear, Module, Sequential
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import DeviceUnsupportedError, EngineError, ScheduleError
from perseus_ds.run_directory.records import RankPlace
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.job import Member, coupled_sets, in_sets, peers_of, recognise, set_name
from perseus_ds.runtime.place import describe_modules, join_orders
from perseus_ds.schedule import textbook


def members(*, replicas: int = 1, peers: int = 1, **more: object) -> list[Member]:
    """Two pipeline ranks for each replica, and for each as many tensor-parallel peers."""
    orders = textbook("1f1b", stages=2, microbatches=4).orders
    places = [
        Place(rank, replica, orders[rank], {rank: 8}, {rank: 1.0}, "float32", modules="plain")
        for replica in range(replicas)
        for rank in range(2)
        for _ in range(peers)
    ]
    return [
        Member(place, where(rank, place), "A100", "550", {"framework": "1.0"}, **more)
        for rank, place in enumerate(places)
    ]


def where(rank: int, place: Place) -> RankPlace:
    return RankPlace(place.replica, place.pipeline_rank, "node1", f"0000:{rank:02x}:00.0")


def recognised(ranks: Sequence[Member]) -> tuple[Mapping[str, str], Sequence[Sequence[RankPlace]]]:
    """The fingerprint of the job, and the GPUs of its replicas; every rank comes to the same."""
    adapter = SimpleNamespace(schedule=partial(join_orders, name="test"))
    made = [
        recognise(adapter, ranks, channel=SimpleNamespace(rank=rank, size=len(ranks)), config=PerseusConfig())
        for rank in range(len(ranks))
    ]
    assert all((one.fingerprint, one.gpus) == (made[0].fingerprint, made[0].gpus) for one in made)
    return made[0].fingerprint, made[0].gpus


def fingerprint(ranks: Sequence[Member]) -> Mapping[str, str]:
    return recognised(ranks)[0]


def test_a_replica_knows_where_its_gpus_are() -> None:
    first, second, third, fourth = (one.where for one in members(replicas=2))
    assert recognised(members(replicas=2))[1] == ((first, second), (third, fourth))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("peers", [1, 2, 4])
def test_tensor_parallelism_is_what_replicas_and_stages_leave(replicas: int, peers: int) -> None:
    assert fingerprint(members(replicas=replicas, peers=peers))["tensor_parallel"] == str(peers)


def test_what_one_rank_has_otherwise_is_named_on_all() -> None:
    here, there = members(settings={"power_limit": "400 W"})
    plain = fingerprint([here, there])
    assert (plain["modules"], plain["power_limit"], plain["torch"]) == ("plain", "400 W", torch.__version__)
    other = replace(there, place=replace(there.place, modules="2 checkpointed"), traits={"framework": "1.1"})
    found = fingerprint([here, replace(other, settings={"power_limit": "300 W"})])
    assert (found["modules"], found["framework"]) == ("2 checkpointed, plain", "1.0, 1.1")
    assert found["power_limit"] == "300 W at rank 1; 400 W at rank 0"
    assert "power_limit" not in fingerprint(members())


def on(*gpus: str) -> list[Member]:
    return [replace(one, gpu=gpu) for one, gpu in zip(members(replicas=2), gpus, strict=True)]


@pytest.mark.parametrize("gpus", [("A100", "A100", "A40", "A40"), ("A100", "A40", "A40", "A100")])
def test_replicas_on_different_gpu_models_are_refused_and_stages_served(gpus: Sequence[str]) -> None:
    with pytest.raises(DeviceUnsupportedError, match=r"replica 0 .*replica 1 .*A40"):
        recognised(on(*gpus))
    assert fingerprint(on("A100", "A40", "A100", "A40"))["gpu"] == "A100, A40"


# Who meets whom within computations, and which replicas this makes one set.

Coupled = Mapping[int, tuple[int, ...]]


def places_at(*seats: tuple[int, int], coupled: Coupled | None = None) -> list[Place]:
    """Ranks at (pipeline rank, replica), some of which meet others of other replicas."""
    return [
        Place(stage, replica, (), {}, {}, "float32", coupled=(coupled or {}).get(rank, ()))
        for rank, (stage, replica) in enumerate(seats)
    ]


FOUR_REPLICAS = [(stage, replica) for stage in range(2) for replica in range(4)]
EXPERTS = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3), 4: (4, 5), 5: (4, 5), 6: (6, 7), 7: (6, 7)}


@pytest.mark.parametrize(
    ("coupled", "sets"),
    [
        ({}, ((0,), (1,), (2,), (3,))),
        (EXPERTS, ((0, 1), (2, 3))),
        ({rank: peers for rank, peers in EXPERTS.items() if rank >= 4}, ((0, 1), (2, 3))),
        ({0: (0, 2)}, ((0, 2), (1,), (3,))),
        (dict.fromkeys(range(4), (0, 1, 2, 3)), ((0, 1, 2, 3),)),
    ],
    ids=["none", "pairs", "experts in the last stage alone", "every second, told by one alone", "all"],
)
def test_replicas_that_meet_are_one_set(coupled: Coupled, sets: tuple[tuple[int, ...], ...]) -> None:
    told = places_at(*FOUR_REPLICAS, coupled=coupled)
    assert coupled_sets(told) == sets
    number = {replica: at for at, one in enumerate(sets) for replica in one}
    assert [one.replica for one in in_sets(told)] == [number[replica] for _, replica in FOUR_REPLICAS]


def test_ranks_of_one_place_meet_and_who_meets_a_third_waits_for_it_as_well() -> None:
    tensor_parallel = [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert peers_of(places_at(*tensor_parallel)) == [(0, 1), (0, 1), (2, 3), (2, 3)]
    across = peers_of(places_at(*tensor_parallel, coupled={0: (0, 2), 2: (0, 2)}))
    assert across == [(0, 1, 2, 3)] * 4


def test_a_stage_without_experts_waits_for_nobody_but_its_set_is_one_and_named_so() -> None:
    told = in_sets(places_at((0, 0), (0, 1), (1, 0), (1, 1), coupled={2: (2, 3), 3: (2, 3)}))
    assert [(one.replica, one.coupled) for one in told] == [(0, (0,)), (0, (1,)), (0, (2, 3)), (0, (2, 3))]
    assert "2, 3" in set_name(((0, 1), (2, 3)), 1)
    assert set_name(((0,), (1,)), 1) == "replica 1"


# Orders of all ranks joined into a schedule, and the words that describe modules.

ZBV = textbook("zbv", stages=4, microbatches=4)


def place(rank: int, replica: int, order: int) -> Place:
    return Place(rank, replica, ZBV.orders[order], {}, {}, "float32")


def test_replicas_that_run_the_same_make_one_schedule() -> None:
    places = [place(rank, replica, rank) for replica in range(2) for rank in range(2)]
    assert join_orders(places, name="zbv") == ZBV


def test_orders_that_differ_or_cannot_run_together_are_refused() -> None:
    with pytest.raises(EngineError, match="different schedules"):
        join_orders([place(0, 0, 0), place(1, 0, 1), place(0, 1, 1)], name="zbv")
    with pytest.raises(ScheduleError):
        join_orders([place(0, 0, 0), place(1, 0, 0)], name="zbv")


# What is said of modules: whatever changes how long they take makes another job of it.


def layers() -> Sequential:
    return Sequential(Linear(2, 2), Linear(2, 2), Linear(2, 2))


def words(*modules: Module) -> str:
    return describe_modules(modules, device_type="cpu")


def compiled(layer: Module) -> Module:
    """Nothing is compiled before it is called; what torch imports for it is deprecated by torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        layer.compile()
    return layer


def with_attribute(name: str, value: object) -> Callable[[Module], Module]:
    def change(layer: Module) -> Module:
        setattr(layer, name, value)
        return layer

    return change


SELECTIVELY = partial(create_selective_checkpoint_contexts, [])
SELECTIVE = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT, context_fn=SELECTIVELY)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (checkpoint_wrapper, "checkpointed"),
        (SELECTIVE, "checkpointed selectively"),
        (checkpoint, "checkpointed"),
        (with_attribute("gradient_checkpointing", True), "checkpointed"),
        (with_attribute("activation_checkpoint_interval", 2), "checkpointed every 2 layers"),
        (offload_wrapper, "offloaded"),
        pytest.param(compiled, "compiled", marks=pytest.mark.thorough),  # imports the compiler
    ],
)
def test_every_layer_that_is_run_otherwise_is_counted(change: Callable[[Module], Module], said: str) -> None:
    changed = layers()
    for place in (0, 2):
        changed[place] = change(changed[place])
    assert words(changed, layers()) == f"2 {said}"
    assert words(changed, checkpoint_wrapper(Linear(2, 2))) != words(changed)


def test_the_precision_of_autocast_is_said() -> None:
    assert words(layers(), layers()) == "plain"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert words(layers()) == "autocast to bfloat16"
        assert words(offload_wrapper(Linear(2, 2))) == "1 offloaded, autocast to bfloat16"
    assert words(layers()) == "plain"
