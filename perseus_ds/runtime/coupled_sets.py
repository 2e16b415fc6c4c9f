"""Ranks that meet within every computation, and the replicas that this couples into one set.

Expert-parallel ranks exchange tokens in every layer, so that none can run slower than the others by itself.
Their replicas run one plan in step. From here on the runtime numbers sets: a *replica* is what meets others
in the reduction alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from perseus_ds.runtime.adapter import Place

Sets = tuple[tuple[int, ...], ...]

T = TypeVar("T", bound=Hashable)


def peers_of(places: Sequence[Place]) -> list[tuple[int, ...]]:
    """For every rank all that it meets within computations, itself included, in ascending order.

    Ranks of one place in the pipeline meet there (tensor and context parallelism), and those that a
    framework calls ``coupled``. Who meets a common third is as late as it.
    """
    seats: dict[tuple[int, int], list[int]] = {}
    for rank, place in enumerate(places):
        seats.setdefault((place.pipeline_rank, place.replica), []).append(rank)
    meetings = [*seats.values(), *((rank, *place.coupled) for rank, place in enumerate(places))]
    found = _components(range(len(places)), meetings)
    return [tuple(sorted(found[rank])) for rank in range(len(places))]


def coupled_sets(places: Sequence[Place]) -> Sets:
    """Join the replicas whose ranks meet within computations; each alone where none do.

    Shape: ``places`` [ranks of the job]; the sets ascend by their first replica.
    """
    meetings = [[places[rank].replica for rank in peers] for peers in set(peers_of(places))]
    found = _components({place.replica for place in places}, meetings)
    return tuple(sorted({tuple(sorted(one)) for one in found.values()}))


def in_sets(places: Sequence[Place]) -> list[Place]:
    """Number what meets in the reduction alone: sets in place of replicas, with all ``coupled`` ranks."""
    number = {replica: at for at, one in enumerate(coupled_sets(places)) for replica in one}
    return [
        replace(place, replica=number[place.replica], coupled=peers)
        for place, peers in zip(places, peers_of(places), strict=True)
    ]


def named(sets: Sets, replica: int) -> str:
    """Name one of them for a line of the log: "replica 1", or "set 1 (replicas 2, 3)"."""
    if len(sets) <= replica or sets[replica] == (replica,):
        return f"replica {replica}"
    return f"set {replica} (replicas {', '.join(map(str, sets[replica]))})"


def _components(things: Iterable[T], meetings: Iterable[Sequence[T]]) -> dict[T, frozenset[T]]:
    """What belongs together because it meets, for each thing."""
    found = {thing: frozenset({thing}) for thing in things}
    for meeting in meetings:
        joined = frozenset().union(*(found[thing] for thing in meeting))
        if joined != found[meeting[0]]:
            found |= dict.fromkeys(joined, joined)
    return found
