"""Replicas whose stages run on the same GPUs: they are measured together and share one frontier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seat:
    """Which GPU one stage of one replica runs on."""

    replica: int
    stage: int
    gpu: str
    driver: str


@dataclass(frozen=True, slots=True)
class Team:
    """Some replicas, and the parts of the job's fingerprint that are their own; empty where all are alike."""

    replicas: tuple[int, ...]
    own: Mapping[str, str] = field(default_factory=dict)


def teams_of(seats: Iterable[Seat]) -> tuple[Team, ...]:
    """Sort the replicas by their stages' GPUs; the first replica is in the first team."""
    replicas: dict[int, list[Seat]] = {}
    for seat in seats:
        replicas.setdefault(seat.replica, []).append(seat)
    alike: dict[tuple[tuple[int, str], ...], list[int]] = {}
    for replica, row in sorted(replicas.items()):
        alike.setdefault(tuple(sorted({(seat.stage, seat.gpu) for seat in row})), []).append(replica)
    if len(alike) == 1:
        return (Team(tuple(sorted(replicas))),)
    return tuple(
        Team(tuple(members), _own([seat for member in members for seat in replicas[member]]))
        for members in alike.values()
    )


def _own(seats: Iterable[Seat]) -> dict[str, str]:
    """GPUs in the order of stages: the same two the other way round are another team's."""
    seats = sorted(seats, key=lambda seat: (seat.stage, seat.gpu))
    gpus = list(dict.fromkeys((seat.stage, seat.gpu) for seat in seats))
    names = [gpu for _, gpu in gpus]
    return {
        "gpu": names[0] if len(set(names)) == 1 else ", ".join(names),
        "driver": ", ".join(sorted({seat.driver for seat in seats})),
    }
