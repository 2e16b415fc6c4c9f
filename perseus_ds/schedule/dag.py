"""What runs after what: a graph of instructions, and when each starts if nothing waits for nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.instruction import Instruction, Kind

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dag:
    """Instructions and the pairs (before, after) of their positions.

    ``buffered`` are the edges along which data travels from rank to rank while both go on: what follows
    starts a transfer's duration after the end of what precedes. Each is named after its send, (sending
    stage, ``SA`` or ``SG``), the key under which profiles and plans keep the duration.
    """

    nodes: tuple[Instruction, ...]
    edges: tuple[Edge, ...]
    buffered: Mapping[Edge, tuple[int, Kind]] = field(default_factory=dict)

    def delays_s(self, fixed_s: Mapping[tuple[int, Kind], float]) -> list[float]:
        """How long after the end of its first each edge lets its second start; what was not measured is 0.

        Units: those of ``fixed_s``, one per edge.
        """
        return [fixed_s.get(self.buffered[e], 0.0) if e in self.buffered else 0.0 for e in self.edges]

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

    def followers(self, fixed_s: Mapping[tuple[int, Kind], float]) -> list[list[tuple[int, float]]]:
        """For every node, what runs after it and how long after its end at the soonest."""
        after: list[list[tuple[int, float]]] = [[] for _ in self.nodes]
        for (before, node), delay_s in zip(self.edges, self.delays_s(fixed_s), strict=True):
            after[before].append((node, delay_s))
        return after

    def starts_of_many(
        self, durations: NDArray[np.float64], fixed_s: Mapping[tuple[int, Kind], float]
    ) -> NDArray[np.float64]:
        """When each node starts, for many sets of durations at once.

        Shape: ``durations`` [nodes, sets], also returned.
        """
        after = self.followers(fixed_s)
        start = np.zeros_like(durations)
        for node in self.topological():
            end = start[node] + durations[node]
            for follower, delay in after[node]:
                np.maximum(start[follower], end + delay, out=start[follower])
        return start

    def earliest_starts(
        self, durations: Sequence[float], fixed_s: Mapping[tuple[int, Kind], float] | None = None
    ) -> list[float]:
        """When each node starts if nothing waits longer than it must.

        Units: those of ``durations``, one per node, and of ``fixed_s``, the durations of buffered transfers.
        """
        after = self.followers(fixed_s or {})
        start = [0.0] * len(self.nodes)
        for node in self.topological():
            end = start[node] + durations[node]
            for follower, delay in after[node]:
                start[follower] = max(start[follower], end + delay)
        return start
