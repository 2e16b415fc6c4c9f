"""The real options of every activity, and the slowest that fits a window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import Whole, pareto
from perseus_ds.solver.problem import Floats, Indices, Ints


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


@inner
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
def places_within(choices: Choices, window: Ints) -> Indices:
    """Return for every activity the place of the slowest option that fits its window."""
    place = np.empty(len(window), dtype=np.int32)
    for activity in range(len(window)):
        place[activity] = slowest_within(choices, activity, window[activity])
    return place
