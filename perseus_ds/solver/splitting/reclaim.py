"""Give the time that rounding gained to activities that can still become slower."""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiling.compiled import compiled, inner, number
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.paths import Graph, earliest_starts, latest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints


def reclaimed(frontier: Frontier, duration_s: Floats, time_s: float, least_part_s: float) -> Ints:
    """Lengthen what has slack, dearest first, up to the slowest option; in ticks.

    An activity that may not be split stops at an option, any other where its slack ends.

    Cost: linear in activities, and in those that each longer one moves.
    """
    whole = frontier.whole
    problem = whole.problem
    duration = np.floor(whole.tick.whole(duration_s)).astype(np.int64)
    end = max(int(whole.tick.whole(np.array(time_s))), whole.longest(duration))
    hulls = whole.hulls
    least_j = np.array([hull.cost_j[-1] for hull in hulls])[problem.table_of]
    cost_j = np.empty(len(problem))
    for table, hull in enumerate(hulls):
        mine = problem.table_of == table
        cost_j[mine] = hull.cost_at(whole.tick.real(duration[mine]))
    room = np.maximum(whole.slowest - duration, 1)
    order = np.argsort((least_j - cost_j) / room, kind="stable")
    first = np.concatenate(([0], np.cumsum([len(hull.option) for hull in hulls]))).astype(np.int64)
    lengths = np.concatenate([whole.tick.whole(hull.duration_s) for hull in hulls])
    least = int(whole.tick.whole(np.array(least_part_s)))
    packed = PackedHulls(first, lengths, problem.table_of.astype(np.int64), least)
    _lengthen(whole.graph, whole.delay, duration, end, order, packed)
    return duration


class PackedHulls(NamedTuple):
    """Lengths of all hulls, one behind the other, each activity's hull, and the shortest part of a split.

    Units: ticks.
    Shape: ``first`` [hulls + 1]; ``length`` [points]; ``table_of`` [activities].
    """

    first: Ints
    length: Ints
    table_of: Ints
    least: int


class Direction(NamedTuple):
    """A graph from one of its ends: how far from that end each activity starts, and in what order they come.

    From the other end time runs backwards: what was after comes before.

    Shape: ``start``, ``rank`` [activities]; ``first`` [activities + 1]; ``onward``, ``arc`` [precedences].
    """

    start: Ints
    rank: Ints
    first: Indices
    onward: Indices
    arc: Indices


class RankHeap(NamedTuple):
    """A heap of activities by rank, and which of them are in it.

    Shape: [activities].
    """

    keys: Ints
    nodes: Indices
    waiting: NDArray[np.bool_]


@compiled
def _lengthen(graph: Graph, delay: Ints, duration: Ints, end: int, order: Ints, hulls: PackedHulls) -> None:
    count = len(duration)
    rank, backwards = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    soon, late = earliest_starts(graph, delay, duration), latest_starts(graph, delay, duration, end)
    for place in range(count):
        one = graph.order[place]
        rank[one], backwards[one] = place, -place
        late[one] = end - late[one] - duration[one]
    ahead = Direction(soon, rank, graph.first_after, graph.after, graph.after_arc)
    back = Direction(late, backwards, graph.first_before, graph.before, graph.before_arc)
    queue = RankHeap(np.empty(count, np.int64), np.empty(count, np.int32), np.zeros(count, np.bool_))
    for one in order:
        longer = _longest_within(hulls, hulls.table_of[one], end - late[one] - soon[one])
        if longer > duration[one]:
            duration[one] = longer
            _move_on(ahead, delay, duration, queue, one)
            _move_on(back, delay, duration, queue, one)


@inner
def _longest_within(hulls: PackedHulls, table: int, most: int) -> int:
    """The longest duration that fits: an option's, or a split behind it, both parts long enough."""
    lengths, at, above = hulls.length, hulls.first[table], hulls.first[table + 1]
    while at + 1 < above and lengths[at + 1] <= most:
        at += 1
    if at + 1 < above:  # as much of the slower option as fits
        fast, slow = lengths[at], lengths[at + 1]
        part = (most - fast) / (slow - fast)
        if part > 0.0 and fast > 0:
            part = min(part, 1.0 - hulls.least / fast)
            if part * slow >= hulls.least:
                return int(fast + np.int64(part * (slow - fast)))
    return int(lengths[at])


@inner
def _move_on(side: Direction, delay: Ints, duration: Ints, queue: RankHeap, one: int) -> None:
    """Move the starts that the end of ``one`` now holds up, in topological order."""
    start, rank, first, onward, arc = side
    keys, nodes, waiting = queue
    push(keys, nodes, 0, rank[one], one)
    size = number(1)
    while size > 0:
        here = nodes[0]
        pop(keys, nodes, size)
        size -= 1
        waiting[here] = False
        for row in range(first[here], first[here + 1]):
            then = onward[row]
            ready = start[here] + duration[here] + delay[arc[row]]
            if ready > start[then]:
                start[then] = ready
                if not waiting[then]:
                    waiting[then] = True
                    push(keys, nodes, size, rank[then], then)
                    size += 1
