"""Longest paths through the precedence graph, in whole ticks."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError
from perseus_ds.solver.compiling.compiled import tiered
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem


class Graph(NamedTuple):
    """Activities in topological order, with their predecessors and successors packed row after row.

    Row ``i`` of ``before`` is ``before[first_before[i]:first_before[i + 1]]``; ``before_arc`` names the
    precedence it came from. Likewise for what comes after.
    """

    order: Indices
    first_before: Indices
    before: Indices
    before_arc: Indices
    first_after: Indices
    after: Indices
    after_arc: Indices


def graph_of(problem: Problem) -> Graph:
    """Pack the precedences and order the activities.

    Raises:
        SolverError: some activities wait for each other; the message walks around one cycle.
    Cost: linear, after sorting the precedences.
    """
    first_before, before_arc = _rows(problem.after, len(problem))
    first_after, after_arc = _rows(problem.before, len(problem))
    before, after = problem.before[before_arc], problem.after[after_arc]
    order = _topological(first_before, first_after, after)
    graph = Graph(order, first_before, before, before_arc, first_after, after, after_arc)
    if len(order) < len(problem):
        walk = " -> ".join(str(activity) for activity in _cycle(graph, len(problem)))
        raise SolverError(f"activities wait for each other: {walk}", hint="remove one of these precedences")
    return graph


def _rows(key: Indices, count: int) -> tuple[Indices, Indices]:
    arcs = np.argsort(key, kind="stable").astype(np.int32)
    first = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(key, minlength=count), out=first[1:])
    return first, arcs


def _topological(first_before: Indices, first_after: Indices, after: Indices) -> Indices:
    """Order the activities so that each comes after all it waits for; those of a cycle are left out.

    Source: Kahn 1962. In Python, since it runs once per graph and compiling it takes as long as a million
    steps.
    """
    waits, first, followers = np.diff(first_before).tolist(), first_after.tolist(), after.tolist()
    order = [activity for activity, count in enumerate(waits) if count == 0]
    for activity in order:
        for follower in followers[first[activity] : first[activity + 1]]:
            waits[follower] -= 1
            if waits[follower] == 0:
                order.append(follower)
    return np.array(order, dtype=np.int32)


def _cycle(graph: Graph, count: int) -> list[int]:
    """Walk backwards among the activities that were never free until one comes up twice."""
    stuck = set(range(count)) - set(graph.order.tolist())
    walk = [min(stuck)]
    while walk.count(walk[-1]) == 1:
        row = slice(graph.first_before[walk[-1]], graph.first_before[walk[-1] + 1])
        walk.append(next(activity for activity in graph.before[row].tolist() if activity in stuck))
    return walk[walk.index(walk[-1]) :][::-1]


@tiered
def earliest_starts(graph: Graph, delay: Ints, duration: Ints, pinned: NDArray[np.bool_], pin: Ints) -> Ints:
    """When each activity starts if nothing waits longer than it must; the ``pinned`` start at ``pin``."""
    start = np.zeros(len(duration), dtype=np.int64)
    for activity in graph.order:
        if len(pinned) and pinned[activity]:
            start[activity] = pin[activity]
            continue
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            ready = start[before] + duration[before] + delay[graph.before_arc[row]]
            start[activity] = max(start[activity], ready)
    return start


@tiered
def latest_starts(
    graph: Graph, delay: Ints, duration: Ints, end: int, pinned: NDArray[np.bool_], pin: Ints
) -> Ints:
    """When each activity must start for all to be over by ``end``; the ``pinned`` start at ``pin``."""
    start = np.empty(len(duration), dtype=np.int64)
    for position in range(len(duration) - 1, -1, -1):
        activity = graph.order[position]
        if len(pinned) and pinned[activity]:
            start[activity] = pin[activity]
            continue
        start[activity] = end - duration[activity]
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            due = start[graph.after[row]] - delay[graph.after_arc[row]]
            start[activity] = min(start[activity], due - duration[activity])
    return start


def longest(graph: Graph, delay: Ints, duration: Ints) -> int:
    """Length of the longest path.

    Cost: linear in activities and precedences.
    """
    free = np.zeros(0, dtype=np.bool_)
    return int((earliest_starts(graph, delay, duration, free, duration) + duration).max())


def longest_seconds(problem: Problem, graph: Graph, duration_s: Floats) -> float:
    """Length of the longest path in seconds, summed in floats and apart from the solver's whole numbers.

    Cost: linear in activities and precedences.
    """
    return float(longest_float(graph, problem.delay_s, duration_s))


@tiered
def longest_float(graph: Graph, delay_s: Floats, duration_s: Floats) -> float:
    """Length of the longest path of a packed graph, in seconds."""
    end_s = np.zeros(len(duration_s))
    for activity in graph.order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            end_s[activity] = max(end_s[activity], end_s[graph.before[row]] + delay_s[graph.before_arc[row]])
        end_s[activity] += duration_s[activity]
    return float(end_s.max())
