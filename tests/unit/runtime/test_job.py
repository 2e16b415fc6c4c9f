"""The identity of a job: reports of all ranks joined into one fingerprint, and coupled sets of replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.job import (
    GpuAddress,
    Job,
    Member,
    coupled_sets,
    in_sets,
    peers_of,
    recognise,
    set_name,
)
from perseus_ds.runtime.place import join_orders
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
        Member(place, place.replica, address(rank), "A100", "550", {"framework": "1.0"}, **more)
        for rank, place in enumerate(places)
    ]


def address(rank: int) -> GpuAddress:
    return GpuAddress("node1", f"0000:{rank:02x}:00.0")


def recognised(ranks: Sequence[Member]) -> Job:
    adapter = SimpleNamespace(schedule=partial(join_orders, name="test"))
    made = [
        recognise(adapter, ranks, channel=SimpleNamespace(rank=rank, size=len(ranks)), config=PerseusConfig())
        for rank in range(len(ranks))
    ]
    assert all((one.fingerprint, one.gpus) == (made[0].fingerprint, made[0].gpus) for one in made)
    return made[0]


def fingerprint(ranks: Sequence[Member]) -> Mapping[str, str]:
    return recognised(ranks).fingerprint


def test_a_replica_knows_where_its_gpus_are() -> None:
    assert recognised(members(replicas=2)).gpus == ((address(0), address(1)), (address(2), address(3)))


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
