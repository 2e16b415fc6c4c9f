"""Give the time that rounding gained to activities that can still become slower."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

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
    _lengthen(
        whole.graph,
        whole.delay,
        duration,
        end,
        order,
        problem.table_of.astype(np.int64),
        first,
        lengths,
        least,
    )
    return duration


@compiled
def _lengthen(
    graph: Graph,
    delay: Ints,
    duration: Ints,
    end: int,
    order: Ints,
    table_of: Ints,
    first: Ints,
    lengths: Ints,
    least: int,
) -> None:
    free = np.zeros(0, dtype=np.bool_)
    late = latest_starts(graph, delay, duration, end, free, duration)
    soon = earliest_starts(graph, delay, duration, free, duration)
    rank = np.empty(len(duration), dtype=np.int64)
    for place in range(len(duration)):
        rank[graph.order[place]] = place
    keys, nodes = np.empty(len(duration), dtype=np.int64), np.empty(len(duration), dtype=np.int32)
    waiting = np.zeros(len(duration), dtype=np.bool_)
    for one in order:
        longer = _longest_within(
            duration[one] + late[one] - soon[one],
            lengths,
            first[table_of[one]],
            first[table_of[one] + 1],
            least,
        )
        if longer > duration[one]:
            late[one] -= longer - duration[one]
            duration[one] = longer
            _move_later(graph, delay, duration, soon, rank, keys, nodes, waiting, one)
            _move_earlier(graph, delay, duration, late, rank, keys, nodes, waiting, one)


@inner
def _longest_within(most: int, lengths: Ints, bottom: int, above: int, least: int) -> int:
    """The longest duration that fits: an option's, or a split behind it, both parts long enough."""
    at = bottom
    while at + 1 < above and lengths[at + 1] <= most:
        at += 1
    if at + 1 < above:  # as much of the slower option as fits
        fast, slow = lengths[at], lengths[at + 1]
        part = (most - fast) / (slow - fast)
        if part > 0.0 and fast > 0:
            part = min(part, 1.0 - least / fast)
            if part * slow >= least:
                return int(fast + np.int64(part * (slow - fast)))
    return int(lengths[at])


@inner
def _move_later(
    graph: Graph,
    delay: Ints,
    duration: Ints,
    soon: Ints,
    rank: Ints,
    keys: Ints,
    nodes: Indices,
    waiting: NDArray[np.bool_],
    one: int,
) -> None:
    """Move the earliest starts that the end of ``one`` now holds up, in topological order."""
    push(keys, nodes, 0, rank[one], one)
    size = number(1)
    while size > 0:
        here = nodes[0]
        pop(keys, nodes, size)
        size -= 1
        waiting[here] = False
        for row in range(graph.first_after[here], graph.first_after[here + 1]):
            after = graph.after[row]
            ready = soon[here] + duration[here] + delay[graph.after_arc[row]]
            if ready > soon[after]:
                soon[after] = ready
                if not waiting[after]:
                    waiting[after] = True
                    push(keys, nodes, size, rank[after], after)
                    size += 1


@inner
def _move_earlier(
    graph: Graph,
    delay: Ints,
    duration: Ints,
    late: Ints,
    rank: Ints,
    keys: Ints,
    nodes: Indices,
    waiting: NDArray[np.bool_],
    one: int,
) -> None:
    """Move the latest starts that the start of ``one`` now presses, against the topological order."""
    push(keys, nodes, 0, -rank[one], one)
    size = number(1)
    while size > 0:
        here = nodes[0]
        pop(keys, nodes, size)
        size -= 1
        waiting[here] = False
        for row in range(graph.first_before[here], graph.first_before[here + 1]):
            before = graph.before[row]
            due = late[here] - delay[graph.before_arc[row]] - duration[before]
            if due < late[before]:
                late[before] = due
                if not waiting[before]:
                    waiting[before] = True
                    push(keys, nodes, size, -rank[before], before)
                    size += 1
