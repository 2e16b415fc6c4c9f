"""Replicas whose stages run on the same GPUs: they are measured together and share one frontier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Placement:
    """Which GPU one stage of one replica runs on."""

    replica: int
    stage: int
    gpu: str
    driver: str


@dataclass(frozen=True, slots=True)
class HardwareGroup:
    """Some replicas, and the parts of the job's fingerprint that are their own; empty where all are alike."""

    replicas: tuple[int, ...]
    own: Mapping[str, str] = field(default_factory=dict)


def hardware_groups_of(placements: Iterable[Placement]) -> tuple[HardwareGroup, ...]:
    """Sort the replicas by their stages' GPUs; the first replica is in the first group."""
    replicas: dict[int, list[Placement]] = {}
    for placement in placements:
        replicas.setdefault(placement.replica, []).append(placement)
    alike: dict[tuple[tuple[int, str], ...], list[int]] = {}
    for replica, row in sorted(replicas.items()):
        alike.setdefault(tuple(sorted({(placement.stage, placement.gpu) for placement in row})), []).append(
            replica
        )
    if len(alike) == 1:
        return (HardwareGroup(tuple(sorted(replicas))),)
    return tuple(
        HardwareGroup(
            tuple(members), _own([placement for member in members for placement in replicas[member]])
        )
        for members in alike.values()
    )


def _own(placements: Iterable[Placement]) -> dict[str, str]:
    """GPUs in the order of stages: the same two the other way round are another group's."""
    placements = sorted(placements, key=lambda placement: (placement.stage, placement.gpu))
    gpus = list(dict.fromkeys((placement.stage, placement.gpu) for placement in placements))
    names = [gpu for _, gpu in gpus]
    return {
        "gpu": names[0] if len(set(names)) == 1 else ", ".join(names),
        "driver": ", ".join(sorted({placement.driver for placement in placements})),
    }
