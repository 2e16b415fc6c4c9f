"""Longest paths through the precedence graph, in whole ticks."""

from __future__ import annotations

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.schedule.graph import Graph, cycle, packed
from perseus_ds.solver.compiling.compiled import tiered
from perseus_ds.solver.problem import Floats, Ints, Problem

FEW = 400
"""Activities up to which longest paths of many plans are followed at once, by vectors."""

__all__ = [
    "Graph",
    "earliest_starts",
    "graph_of",
    "latest_starts",
    "longest",
    "longest_seconds",
]


def graph_of(problem: Problem) -> Graph:
    """Pack the precedences and order the activities.

    Raises:
        SolverError: some activities wait for each other; the message walks around one cycle.
    Cost: linear, after sorting the precedences.
    """
    graph = packed(len(problem), problem.before, problem.after)
    if len(graph.order) < len(problem):
        walk = " -> ".join(map(str, cycle(graph)))
        raise SolverError(f"activities wait for each other: {walk}", hint="remove one of these precedences")
    return graph


@tiered
def earliest_starts(graph: Graph, delay: Ints, duration: Ints) -> Ints:
    """When each activity starts if nothing waits longer than it must."""
    start = np.zeros(len(duration), dtype=np.int64)
    for activity in graph.order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            ready = start[before] + duration[before] + delay[graph.before_arc[row]]
            start[activity] = max(start[activity], ready)
    return start


@tiered
def latest_starts(graph: Graph, delay: Ints, duration: Ints, end: int) -> Ints:
    """When each activity must start for all to be over by ``end``."""
    start = np.empty(len(duration), dtype=np.int64)
    for position in range(len(duration) - 1, -1, -1):
        activity = graph.order[position]
        start[activity] = end - duration[activity]
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            due = start[graph.after[row]] - delay[graph.after_arc[row]]
            start[activity] = min(start[activity], due - duration[activity])
    return start


def longest(graph: Graph, delay: Ints, duration: Ints) -> int:
    """Length of the longest path.

    Cost: linear in activities and precedences.
    """
    return int((earliest_starts(graph, delay, duration) + duration).max())


def longest_seconds(problem: Problem, graph: Graph, duration_s: Floats) -> Floats:
    """Length of the longest path in seconds, summed in floats and apart from the solver's whole numbers.

    Shape: ``duration_s`` [plans, activities]; returns [plans].
    Cost: linear in activities and precedences. Plans of few activities are followed all at once.
    """
    if len(problem) > FEW:
        return np.array([_longest_float(graph, problem.delay_s, row) for row in duration_s])
    return _longest_abreast(graph, problem.delay_s, duration_s)


@tiered
def _longest_float(graph: Graph, delay_s: Floats, duration_s: Floats) -> float:
    end_s = np.zeros(len(duration_s))
    for activity in graph.order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            end_s[activity] = max(end_s[activity], end_s[graph.before[row]] + delay_s[graph.before_arc[row]])
        end_s[activity] += duration_s[activity]
    return float(end_s.max())


def _longest_abreast(graph: Graph, delay_s: Floats, duration_s: Floats) -> Floats:
    first, before, arc = graph.first_before.tolist(), graph.before.tolist(), graph.before_arc.tolist()
    lasts_s = np.ascontiguousarray(duration_s.T)
    end_s, delays_s = np.zeros(lasts_s.shape), delay_s.tolist()
    for activity in graph.order.tolist():
        own_s = end_s[activity]
        for row in range(first[activity], first[activity + 1]):
            np.maximum(own_s, end_s[before[row]] + delays_s[arc[row]], out=own_s)
        own_s += lasts_s[activity]
    return np.asarray(end_s.max(axis=0))
