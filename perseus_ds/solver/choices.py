"""The real options of every activity, and the slack that a plan leaves turned into cheaper ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.hull import pareto
from perseus_ds.solver.paths import Graph, earliest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.whole import Whole


class Choices(NamedTuple):
    """Each activity's undominated options in one long list, fastest first, cost strictly falling.

    Shape: ``first``, ``last`` [activities] (both included); ``length`` (ticks), ``cost``, ``option``
    (position in its table) [places].
    """

    first: Indices
    last: Indices
    length: Ints
    cost: Floats
    option: Indices


def choices_of(whole: Whole) -> Choices:
    """Pack the Pareto options of all tables."""
    tables = whole.problem.tables
    options = [pareto(table) for table in tables]
    end = np.cumsum([len(kept) for kept in options])
    begin = np.concatenate(([0], end[:-1]))
    duration_s = np.concatenate([t.duration_s[kept] for t, kept in zip(tables, options, strict=True)])
    cost = np.concatenate([t.cost_j[kept] for t, kept in zip(tables, options, strict=True)])
    table_of = whole.problem.table_of
    return Choices(
        first=begin[table_of].astype(np.int32),
        last=(end - 1)[table_of].astype(np.int32),
        length=whole.tick.whole(duration_s),
        cost=cost,
        option=np.concatenate(options).astype(np.int32),
    )


@compiled
def slowest_within(choices: Choices, activity: int, window: int) -> int:
    """Return the place of the slowest option that fits the window, or of the fastest of all."""
    low, high = choices.first[activity], choices.last[activity]
    while low < high:
        middle = (low + high + 1) >> 1
        if choices.length[middle] <= window:
            low = middle
        else:
            high = middle - 1
    return int(low)


@compiled
def reclaim(graph: Graph, delay: Ints, choices: Choices, duration: Ints, wanted: int) -> Indices:
    """Round every duration down, then give later activities what the earliest starts leave them.

    No path exceeds ``wanted``: an activity never ends after the latest start of any follower, and the
    earliest starts stay possible because nothing before it has been stretched yet.

    Cost: linear in activities and precedences.
    """
    place = np.empty(len(duration), dtype=np.int32)
    rounded = np.empty(len(duration), dtype=np.int64)
    for activity in range(len(duration)):
        rounded[activity] = choices.length[slowest_within(choices, activity, duration[activity])]
    start = earliest_starts(graph, delay, rounded, np.zeros(0, dtype=np.bool_), rounded)
    for position in range(len(duration) - 1, -1, -1):
        activity = graph.order[position]
        end = wanted
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            after = graph.after[row]
            end = min(end, start[after] - delay[graph.after_arc[row]])
        place[activity] = slowest_within(choices, activity, end - start[activity])
        start[activity] = end - choices.length[place[activity]]
    return place
