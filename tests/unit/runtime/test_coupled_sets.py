"""Who meets whom within computations, and which replicas this makes one set."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.job import coupled_sets, in_sets, peers_of, set_name

Coupled = Mapping[int, tuple[int, ...]]


def places(*seats: tuple[int, int], coupled: Coupled | None = None) -> list[Place]:
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
def test_replicas_that_meet_somewhere_are_one_set(
    coupled: Coupled, sets: tuple[tuple[int, ...], ...]
) -> None:
    told = places(*FOUR_REPLICAS, coupled=coupled)
    assert coupled_sets(told) == sets
    number = {replica: at for at, one in enumerate(sets) for replica in one}
    assert [one.replica for one in in_sets(told)] == [number[replica] for _, replica in FOUR_REPLICAS]


def test_ranks_of_one_place_meet_and_who_meets_a_third_waits_for_it_as_well() -> None:
    tensor_parallel = [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert peers_of(places(*tensor_parallel)) == [(0, 1), (0, 1), (2, 3), (2, 3)]
    across = peers_of(places(*tensor_parallel, coupled={0: (0, 2), 2: (0, 2)}))
    assert across == [(0, 1, 2, 3)] * 4


def test_a_stage_without_experts_waits_for_nobody_but_its_set_is_one() -> None:
    told = in_sets(places((0, 0), (0, 1), (1, 0), (1, 1), coupled={2: (2, 3), 3: (2, 3)}))
    assert [(one.replica, one.coupled) for one in told] == [(0, (0,)), (0, (1,)), (0, (2, 3)), (0, (2, 3))]


def test_the_log_names_sets_with_their_replicas() -> None:
    assert "2, 3" in set_name(((0, 1), (2, 3)), 1)
    assert set_name(((0,), (1,)), 1) == "replica 1"
