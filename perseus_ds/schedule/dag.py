"""What runs after what: the precedence graph of a schedule, with transfers as rendezvous."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.order import Schedule

_PEER = {
    Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1),
    Kind.RECV_GRAD: (Kind.SEND_GRAD, +1),
}
_SENDS = frozenset(kind for kind, _ in _PEER.values())


@dataclass(frozen=True, slots=True)
class Dag:
    """Instructions and the pairs (before, after) of their positions.

    A transfer is one node, named after its sender: both ends wait for each other (gloo always, NCCL
    for all but small messages), so what follows it on either stage follows what came before it on both.
    """

    nodes: tuple[Instruction, ...]
    edges: tuple[tuple[int, int], ...]

    def topological(self) -> list[int]:
        """Node positions, each after all that it waits for.

        Raises:
            InvalidScheduleError: some instructions wait for each other.
        Cost: linear in nodes and edges.
        """
        order = self._runnable()
        if len(order) < len(self.nodes):
            chain = " waits for ".join(map(str, self.cycle()))
            raise InvalidScheduleError(f"the schedule never ends: {chain}")
        return order

    def cycle(self) -> list[Instruction]:
        """Instructions of which each waits for the next, the first again at the end; empty if all can run."""
        done = set(self._runnable())
        if len(done) == len(self.nodes):
            return []
        waits_for = {node: before for before, node in self.edges if before not in done and node not in done}
        trail = [next(iter(waits_for))]
        while waits_for[trail[-1]] not in trail:
            trail.append(waits_for[trail[-1]])
        trail.append(waits_for[trail[-1]])
        return [self.nodes[node] for node in trail[trail.index(trail[-1]) :]]

    def _runnable(self) -> list[int]:
        """Every node that comes to its turn, in such an order: all of them unless some wait in a circle."""
        after = self.successors()
        waits = [0] * len(self.nodes)
        for _, node in self.edges:
            waits[node] += 1
        ready = deque(node for node, count in enumerate(waits) if count == 0)
        order: list[int] = []
        while ready:
            order.append(node := ready.popleft())
            for follower in after[node]:
                waits[follower] -= 1
                if waits[follower] == 0:
                    ready.append(follower)
        return order

    def successors(self) -> list[list[int]]:
        """For every node, what runs directly after it."""
        after: list[list[int]] = [[] for _ in self.nodes]
        for before, node in self.edges:
            after[before].append(node)
        return after

    def earliest_starts(self, durations: Sequence[float]) -> list[float]:
        """When each node starts if nothing waits longer than it must.

        Units: those of ``durations``, one per node.
        """
        after = self.successors()
        start = [0.0] * len(self.nodes)
        for node in self.topological():
            end = start[node] + durations[node]
            for follower in after[node]:
                start[follower] = max(start[follower], end)
        return start


def dag_of(schedule: Schedule) -> Dag:
    """Join the orders of all stages into one graph.

    Streams that contain transfers are joined by them, send and receive matched in order; bare orders
    by the data that flows between stages (``F`` downwards, ``B`` upwards). A tied reduction is one node
    for all stages that take part.

    Raises:
        InvalidScheduleError: a transfer or a computation without its other end.
    """
    meeting = dict(_meetings(schedule))
    nodes = tuple(dict.fromkeys(meeting.values()))
    position = {node: index for index, node in enumerate(nodes)}
    pairs = [(meeting[a], meeting[b]) for order in schedule.orders for a, b in pairwise(order)]
    if not any(node.kind.is_transfer for node in nodes):
        pairs.extend(_data_flow(nodes, schedule.stages))
    for before, after in pairs:
        if after not in position:
            raise InvalidScheduleError(f"{before} hands its result to {after}, which no stage runs")
    edges = dict.fromkeys((position[a], position[b]) for a, b in pairs)
    return Dag(nodes, tuple(edges))


def _meetings(schedule: Schedule) -> Iterator[tuple[Instruction, Instruction]]:
    """Pair every instruction with the node that stands for it in the graph."""
    present = {instruction for order in schedule.orders for instruction in order}
    received: set[Instruction] = set()
    tied = min((i.stage for i in present if i.kind is Kind.REDUCE_TIED), default=0)
    for order in schedule.orders:
        for instruction in order:
            node = instruction
            if instruction.kind in _PEER:
                kind, step = _PEER[instruction.kind]
                node = Instruction(instruction.stage + step, kind, instruction.microbatch)
                if node not in present:
                    raise InvalidScheduleError(f"{instruction} waits for {node}, which no stage runs")
                received.add(node)
            elif instruction.kind is Kind.REDUCE_TIED:
                node = Instruction(tied, Kind.REDUCE_TIED, instruction.microbatch)
            yield instruction, node
    for instruction in present:
        if instruction.kind in _SENDS and instruction not in received:
            raise InvalidScheduleError(f"{instruction} waits for ever: no stage receives it")


def _data_flow(nodes: Sequence[Instruction], stages: int) -> Iterator[tuple[Instruction, Instruction]]:
    """Order the computations of neighbouring stages on one microbatch."""
    for node in nodes:
        if node.kind is Kind.FORWARD and node.stage + 1 < stages:
            yield node, Instruction(node.stage + 1, Kind.FORWARD, node.microbatch)
        elif node.kind is Kind.FORWARD:
            yield node, Instruction(node.stage, Kind.BACKWARD, node.microbatch)
        elif node.kind is Kind.BACKWARD and node.stage > 0:
            yield node, Instruction(node.stage - 1, Kind.BACKWARD, node.microbatch)


def by_stage(nodes: Sequence[Instruction]) -> dict[int, list[int]]:
    """Positions of the nodes of every stage, in the order given."""
    positions: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        positions[node.stage].append(index)
    return positions
