"""Which replicas are measured together, and what they are known by."""

import pytest

from perseus_ds.runtime.hardware_groups import Seat, Team, teams_of

A, B = "A100", "A40"


def seats(*replicas: tuple[str, ...]) -> list[Seat]:
    return [
        Seat(replica, stage, gpu, "550")
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
    assert [team.replicas for team in teams_of(reversed(seats(*replicas)))] == together


def test_one_team_has_nothing_of_its_own() -> None:
    assert teams_of(seats((A, B), (A, B))) == (Team((0, 1)),)


def test_teams_are_told_apart_by_their_gpus_in_the_order_of_stages() -> None:
    assert [team.own["gpu"] for team in teams_of(seats((A, B), (B, A), (B, B)))] == [
        "A100, A40",
        "A40, A100",
        "A40",
    ]


def test_tensor_parallel_peers_share_a_seat() -> None:
    assert len(teams_of([*seats((A, A), (A, A)), *seats((A, A), (A, A))])) == 1
