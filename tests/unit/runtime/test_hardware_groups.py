"""Which replicas are measured together, and what they are known by."""

import pytest

from perseus_ds.runtime.hardware_groups import HardwareGroup, Placement, hardware_groups_of

A, B = "A100", "A40"


def placements(*replicas: tuple[str, ...]) -> list[Placement]:
    return [
        Placement(replica, stage, gpu, "550")
        for replica, gpus in enumerate(replicas)
        for stage, gpu in enumerate(gpus)
    ]


@pytest.mark.parametrize(
    ("replicas", "together"),
    [
        ([(A, A)], [(0,)]),
        ([(A, A), (A, A)], [(0, 1)]),
        ([(A, B), (A, B)], [(0, 1)]),
        ([(A, A), (B, B), (A, A)], [(0, 2), (1,)]),
        ([(A, B), (B, A)], [(0,), (1,)]),
    ],
)
def test_replicas_with_the_same_gpus_at_the_same_stages_are_a_team(
    replicas: list[tuple[str, ...]], together: list[tuple[int, ...]]
) -> None:
    assert [group.replicas for group in hardware_groups_of(reversed(placements(*replicas)))] == together


def test_one_team_has_nothing_of_its_own() -> None:
    assert hardware_groups_of(placements((A, B), (A, B))) == (HardwareGroup((0, 1)),)


def test_teams_are_told_apart_by_their_gpus_in_the_order_of_stages() -> None:
    assert [group.own["gpu"] for group in hardware_groups_of(placements((A, B), (B, A), (B, B)))] == [
        "A100, A40",
        "A40, A100",
        "A40",
    ]


def test_tensor_parallel_peers_share_a_seat() -> None:
    assert len(hardware_groups_of([*placements((A, A), (A, A)), *placements((A, A), (A, A))])) == 1
