"""A graph packed row after row: an order in which all can run, and the longest paths to every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]
Seconds = NDArray[np.float64]


class Graph(NamedTuple):
    """Nodes in topological order, with their predecessors and successors packed row after row.

    Row ``i`` of ``before`` is ``before[first_before[i]:first_before[i + 1]]``; ``before_arc`` names the
    edge it came from. Likewise for what comes after. Nodes of a cycle are missing in ``order``.

    Shape: ``order`` [nodes]; ``first_before``, ``first_after`` [nodes + 1]; the others [edges].
    """

    order: Indices
    first_before: Indices
    before: Indices
    before_arc: Indices
    first_after: Indices
    after: Indices
    after_arc: Indices


def packed(nodes: int, before: Indices, after: Indices) -> Graph:
    """Pack the edges ``before[e] -> after[e]`` and order the nodes.

    Cost: linear, after sorting the edges.
    """
    first_before, before_arc = _rows(after, nodes)
    first_after, after_arc = _rows(before, nodes)
    followers = after[after_arc]
    order = _topological(first_before, first_after, followers)
    return Graph(order, first_before, before[before_arc], before_arc, first_after, followers, after_arc)


def _rows(key: Indices, count: int) -> tuple[Indices, Indices]:
    edges = np.argsort(key, kind="stable").astype(np.int32)
    first = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(key, minlength=count), out=first[1:])
    return first, edges


def _topological(first_before: Indices, first_after: Indices, after: Indices) -> Indices:
    """Order the nodes so that each comes after all it waits for; those of a cycle are left out.

    Source: Kahn 1962. In Python, since it runs once per graph and compiling it takes as long as a million
    steps.
    """
    waits, first, followers = np.diff(first_before).tolist(), first_after.tolist(), after.tolist()
    order = [node for node, count in enumerate(waits) if count == 0]
    for node in order:
        for follower in followers[first[node] : first[node + 1]]:
            waits[follower] -= 1
            if waits[follower] == 0:
                order.append(follower)
    return np.array(order, dtype=np.int32)


def cycle(graph: Graph) -> list[int]:
    """Nodes of which each must end before the next starts, the lowest first and last; empty if none."""
    if len(graph.order) == len(graph.first_before) - 1:
        return []
    import networkx as nx  # noqa: PLC0415  # heavy, and a graph seldom has a cycle

    nodes = np.repeat(np.arange(len(graph.first_before) - 1), np.diff(graph.first_before))
    found = nx.find_cycle(nx.DiGraph(zip(graph.before.tolist(), nodes.tolist(), strict=True)))
    circle = [node for node, _ in found]
    lowest = circle.index(min(circle))
    return [*circle[lowest:], *circle[: lowest + 1]]


def starts(graph: Graph, delay: list[float], lasts: list[float]) -> list[float]:
    """When each node starts if nothing waits longer than it must.

    Units: one for all. ``delay`` [edges] is how long after the end of its first each edge lets its second
    start, ``lasts`` [nodes].
    """
    first, after, edges = graph.first_after.tolist(), graph.after.tolist(), graph.after_arc.tolist()
    start = [0.0] * len(lasts)
    for node in graph.order.tolist():
        end = start[node] + lasts[node]
        for row in range(first[node], first[node + 1]):
            start[after[row]] = max(start[after[row]], end + delay[edges[row]])
    return start


def in_turn(
    graph: Graph, delay: list[float], lasts: Callable[[int], Seconds | float]
) -> Iterator[tuple[int, Seconds, Seconds]]:
    """Yield every node with its starts and ends, in topological order, for many sets of durations at once.

    ``lasts`` gives a node's durations [sets]. Starts are kept only until their node is over.
    """
    first, after, edges = graph.first_after.tolist(), graph.after.tolist(), graph.after_arc.tolist()
    zero, start = np.zeros(()), dict[int, Seconds]()
    for node in graph.order.tolist():
        begin = start.pop(node, zero)
        end = np.asarray(begin + lasts(node))
        yield node, begin, end
        for row in range(first[node], first[node + 1]):
            follower, ready = after[row], end + delay[edges[row]]
            start[follower] = np.maximum(start[follower], ready) if follower in start else ready
