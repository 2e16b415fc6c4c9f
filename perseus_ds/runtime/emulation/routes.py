"""Whom each instruction of one rank waits for and whom it releases, read off the schedule's own graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perseus_ds.schedule import Instruction, Kind, Order, Schedule, dag_of

_SENDER = {Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1), Kind.RECV_GRAD: (Kind.SEND_GRAD, +1)}

REDUCTION, NORM, COUPLED, LOADS = 0, 1, 2, 3
"""Tags under which replicas meet, a pipeline's ranks for the norm, peers within computations, and loads."""

_FIRST = 4
"""What stands in the graph is numbered from here on."""


@dataclass(frozen=True, slots=True)
class PeerRank:
    """Another pipeline rank, and the number of what both have in common: alike on both."""

    rank: int
    tag: int


@dataclass(frozen=True, slots=True)
class Buffered:
    """What comes over through a buffer: from whom, and whether it is an activation or a gradient."""

    peer: PeerRank
    kind: Kind


@dataclass(frozen=True, slots=True)
class Route:
    """What one instruction exchanges: ``meets`` at once both ways, ``waits_for`` before, ``releases`` after.

    ``lasts`` is how many transfers it carries out.
    """

    instruction: Instruction
    meets: tuple[PeerRank, ...] = ()
    waits_for: tuple[Buffered, ...] = ()
    releases: tuple[PeerRank, ...] = ()
    lasts: int = 0


def routes_of(schedule: Schedule, rank: int) -> list[Route]:
    """Follow every edge of the graph that leaves this rank; one route for every instruction of its order."""
    graph = dag_of(schedule)
    home = schedule.rank_of_stages()
    meeting = _meetings(schedule)
    releases: dict[Instruction, list[PeerRank]] = defaultdict(list)
    waits_for: dict[Instruction, list[Buffered]] = defaultdict(list)
    for tag, ((before, after), (_, kind)) in enumerate(sorted(graph.buffered.items()), _FIRST + len(meeting)):
        giver, taker = graph.nodes[before], graph.nodes[after]
        if home[giver.stage] == rank:
            releases[giver].append(PeerRank(home[taker.stage], tag))
        if home[taker.stage] == rank:
            waits_for[taker].append(Buffered(PeerRank(home[giver.stage], tag), kind))
    return [
        Route(i, tuple(met), tuple(waits_for[i]), tuple(releases[i]), lasts)
        for i, met, lasts in _met(schedule.orders[rank], rank, meeting)
    ]


def _met(
    order: Order, rank: int, meeting: Mapping[Instruction, tuple[int, list[int]]]
) -> Iterator[tuple[Instruction, list[PeerRank], int]]:
    """List whom each instruction meets; transfers queued for a commit meet there, all of them."""
    queues = any(i.kind is Kind.COMMIT for i in order)
    queued: list[PeerRank] = []
    for instruction in order:
        tag, ranks = meeting.get(_node(instruction), (0, []))
        met = [PeerRank(other, tag) for other in ranks if other != rank]
        if queues and instruction.kind.is_transfer:
            queued += met
            yield instruction, [], 0
        elif instruction.kind is Kind.COMMIT:
            yield instruction, queued, min(1, len(queued))
            queued = []
        else:
            yield instruction, met, min(1, len(met)) if instruction.kind.is_transfer else 0


def _meetings(schedule: Schedule) -> Mapping[Instruction, tuple[int, list[int]]]:
    """Number what stands on several ranks, with those ranks."""
    ranks: dict[Instruction, list[int]] = defaultdict(list)
    for rank, order in enumerate(schedule.orders):
        for instruction in order:
            if rank not in ranks[_node(instruction)]:
                ranks[_node(instruction)].append(rank)
    shared = {node: found for node, found in ranks.items() if len(found) > 1}
    return {node: (tag, found) for tag, (node, found) in enumerate(shared.items(), _FIRST)}


def _node(instruction: Instruction) -> Instruction:
    """The same for all ends of one thing: a transfer is named after its sender."""
    if instruction.kind is Kind.REDUCE_TIED:
        return Instruction(0, instruction.kind, instruction.microbatch)
    if instruction.kind not in _SENDER:
        return instruction
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)
