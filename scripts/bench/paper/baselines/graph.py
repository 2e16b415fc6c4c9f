"""A schedule's graph as arrays, and the longest paths through it: compiled, for many passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.schedule import Dag, Kind
from perseus_ds.solver.compiled import compiled

Indices = NDArray[np.int64]


class Graph(NamedTuple):
    """What must end before each node starts, how long before, and an order in which all can run.

    Shape: ``order`` [nodes]; ``first`` [nodes + 1] are the bounds of each node's part of ``before`` and
    ``delay`` [edges].
    """

    order: Indices
    first: Indices
    before: Indices
    delay: NDArray[np.float64]

    @property
    def after(self) -> Indices:
        """The node that waits, of every edge."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.first))


def graph_of(dag: Dag, fixed_s: Mapping[tuple[int, Kind], float]) -> Graph:
    """Pack the edges by the node that waits.

    Units: ``delay`` as ``fixed_s``, the durations of buffered transfers.

    Raises:
        ScheduleError: some instructions wait for each other.
    """
    edges = np.array(dag.edges, dtype=np.int64).reshape(-1, 2)
    packed = np.argsort(edges[:, 1], kind="stable")
    first = np.searchsorted(edges[packed, 1], np.arange(len(dag.nodes) + 1))
    return Graph(
        order=np.array(dag.topological(), dtype=np.int64),
        first=first,
        before=np.ascontiguousarray(edges[packed, 0]),
        delay=np.array(dag.delays_s(fixed_s), dtype=np.float64)[packed],
    )


@compiled
def ends(graph: Graph, duration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return when every node ends if none waits longer than it must.

    Units: those of ``duration``, one per node.
    """
    end = np.zeros(len(duration))
    for node in graph.order:
        start = 0.0
        for edge in range(graph.first[node], graph.first[node + 1]):
            start = max(start, end[graph.before[edge]] + graph.delay[edge])
        end[node] = start + duration[node]
    return end


@compiled
def latest_ends(graph: Graph, duration: NDArray[np.float64], until: float) -> NDArray[np.float64]:
    """Return when every node must have ended for all to end by ``until``."""
    latest = np.full(len(duration), until)
    for place in range(len(graph.order) - 1, -1, -1):
        node = graph.order[place]
        for edge in range(graph.first[node], graph.first[node + 1]):
            earlier = graph.before[edge]
            latest[earlier] = min(latest[earlier], latest[node] - duration[node] - graph.delay[edge])
    return latest


@compiled
def critical_path(graph: Graph, end: NDArray[np.float64]) -> Indices:
    """Return one longest path, last node first; of predecessors that end alike the first one."""
    path = [int(np.argmax(end))]
    while graph.first[path[-1]] < graph.first[path[-1] + 1]:
        last = graph.first[path[-1]]
        for edge in range(last + 1, graph.first[path[-1] + 1]):
            if end[graph.before[edge]] + graph.delay[edge] > end[graph.before[last]] + graph.delay[last]:
                last = edge
        path.append(int(graph.before[last]))
    return np.array(path)
