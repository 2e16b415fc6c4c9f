"""What runs after what: a graph of instructions, and when each starts if nothing waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.graph import Graph, cycle, in_turn, packed, starts
from perseus_ds.schedule.instruction import Instruction, Kind

if TYPE_CHECKING:
    import networkx as nx

Edge = tuple[int, int]


@dataclass(frozen=True)
class Dag:
    """Instructions and the pairs (before, after) of their positions.

    ``buffered`` are the edges along which data travels from rank to rank while both go on. What follows
    starts a transfer's duration after the end of what precedes. Each is named after its send, (sending stage,
    ``SA`` or ``SG``), the key under which profiles and plans keep the duration.
    """

    nodes: tuple[Instruction, ...]
    edges: tuple[Edge, ...]
    buffered: Mapping[Edge, tuple[int, Kind]] = field(default_factory=dict)

    def delays_s(self, fixed_s: Mapping[tuple[int, Kind], float]) -> list[float]:
        """How long after the end of its first each edge lets its second start; what was not measured is 0.

        Units: those of ``fixed_s``, one per edge.
        """
        return [fixed_s.get(self.buffered[e], 0.0) if e in self.buffered else 0.0 for e in self.edges]

    @cached_property
    def graph(self) -> Graph:
        """The same, packed for passes over it."""
        edges = np.array(self.edges, dtype=np.int32).reshape(-1, 2)
        return packed(len(self.nodes), *np.ascontiguousarray(edges.T))

    def topological(self) -> list[int]:
        """Node positions, each after all that it waits for.

        Raises:
            InvalidScheduleError: some instructions wait for each other.
        Cost: linear in nodes and edges.
        """
        if len(self.graph.order) < len(self.nodes):
            chain = " waits for ".join(map(str, self.cycle()))
            raise InvalidScheduleError(f"the schedule never ends: {chain}")
        order: list[int] = self.graph.order.tolist()
        return order

    def cycle(self) -> list[Instruction]:
        """Instructions of which each waits for the next, the first again at the end; empty if all can run."""
        return [self.nodes[node] for node in reversed(cycle(self.graph))]

    def to_networkx(self) -> nx.DiGraph:
        """Return the graph for other tools: nodes are names of instructions (``0F0``).

        A node has its ``stage``, ``kind`` and ``microbatch``, an edge along which data travels meanwhile
        the ``transfer`` that its duration is known by (``0SA``).
        """
        import networkx as nx  # noqa: PLC0415  # heavy, and seldom asked for

        graph, names = nx.DiGraph(), [str(node) for node in self.nodes]
        for name, node in zip(names, self.nodes, strict=True):
            graph.add_node(name, stage=node.stage, kind=node.kind.value, microbatch=node.microbatch)
        for edge in self.edges:
            stage, kind = self.buffered.get(edge, (None, None))
            named = {} if kind is None else {"transfer": f"{stage}{kind.value}"}
            graph.add_edge(names[edge[0]], names[edge[1]], **named)
        return graph

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
        start = np.empty_like(durations)
        for node, begin, _ in self.in_turn(durations.__getitem__, fixed_s):
            start[node] = begin
        return start

    def in_turn(
        self,
        lasts_s: Callable[[int], NDArray[np.float64] | float],
        fixed_s: Mapping[tuple[int, Kind], float],
    ) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
        """Yield every node's position, starts and ends, each node after all that it waits for.

        Shape: ``lasts_s`` of a node [sets], or one for all; starts and ends likewise.
        """
        self.topological()
        return in_turn(self.graph, self.delays_s(fixed_s), lasts_s)

    def earliest_starts(
        self, durations: Sequence[float], fixed_s: Mapping[tuple[int, Kind], float] | None = None
    ) -> list[float]:
        """When each node starts if nothing waits longer than it must.

        Units: those of ``durations``, one per node, and of ``fixed_s``, the durations of buffered transfers.
        """
        self.topological()
        return starts(self.graph, self.delays_s(fixed_s or {}), list(durations))
