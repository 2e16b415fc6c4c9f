"""A schedule's graph as arrays, and the longest paths through it: compiled, for many passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.schedule import Dag
from perseus_ds.solver.compiled import compiled

Indices = NDArray[np.int64]


class Graph(NamedTuple):
    """What must end before each node starts, and an order in which all can run.

    Shape: ``order`` [nodes]; ``first`` [nodes + 1] are the bounds of each node's part of ``before`` [edges].
    """

    order: Indices
    first: Indices
    before: Indices


def graph_of(dag: Dag) -> Graph:
    """Pack the edges by the node that waits.

    Raises:
        InvalidScheduleError: some instructions wait for each other.
    """
    edges = np.array(sorted(dag.edges, key=lambda edge: edge[1]), dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(edges[:, 1], np.arange(len(dag.nodes) + 1))
    return Graph(np.array(dag.topological(), dtype=np.int64), first, np.ascontiguousarray(edges[:, 0]))


@compiled
def ends(graph: Graph, duration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return when every node ends if none waits longer than it must.

    Units: those of ``duration``, one per node.
    """
    end = np.zeros(len(duration))
    for node in graph.order:
        start = 0.0
        for edge in range(graph.first[node], graph.first[node + 1]):
            start = max(start, end[graph.before[edge]])
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
            latest[earlier] = min(latest[earlier], latest[node] - duration[node])
    return latest


@compiled
def critical_path(graph: Graph, end: NDArray[np.float64]) -> Indices:
    """Return one longest path, last node first; of predecessors that end alike the first one."""
    path = [int(np.argmax(end))]
    while graph.first[path[-1]] < graph.first[path[-1] + 1]:
        begin = graph.first[path[-1]]
        last = graph.before[begin]
        for edge in range(begin + 1, graph.first[path[-1] + 1]):
            if end[graph.before[edge]] > end[last]:
                last = graph.before[edge]
        path.append(int(last))
    return np.array(path)
