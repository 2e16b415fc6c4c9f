"""Real options in the order of the relaxed plan: many partial plans side by side, priced by its flow."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled, number
from perseus_ds.solver.discrete.choices import Choices, slowest_within
from perseus_ds.solver.discrete.front import (
    Front,
    Steps,
    begin_after,
    front_for,
    keep_best,
    steps_for,
    try_options,
)
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints


class Guide(NamedTuple):
    """The relaxed optimum at one time, as a beam reads it.

    ``order``: activities by relaxed start; ``start``, ``end``: relaxed starts and ends; ``due``: latest
    ends from which the rest can keep the wanted time at its fastest; ``price``: the flow, cost per tick of
    duration; ``toll``: cost per tick of waiting; ``low`` to ``high``: the places that are tried.

    Units: ticks; cost per tick.
    Shape: ``toll`` [precedences]; the others [activities].
    """

    order: Indices
    start: Ints
    end: Ints
    due: Ints
    price: Floats
    toll: Floats
    low: Indices
    high: Indices


def beam(graph: Graph, delay: Ints, choices: Choices, guide: Guide, width: int, leaning: float) -> Indices:
    """Choose a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative: of every
    option, what it costs at the flow's price above the best; of every wait, its toll. So partial plans over
    the same activities compare fairly, and ``width`` of them go on. ``leaning`` is the share of the strain
    that counts against one: ends out of step will cost tolls later.

    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    column = np.empty(count, dtype=np.int32)
    columns = columns_of(graph, guide.order, column)
    fronts = front_for(width, columns), front_for(width, columns)
    steps = steps_for(width * int((guide.high - guide.low).max() + 1))
    origin, place = np.empty((2, count, width), dtype=np.int32)
    open_for = np.diff(graph.first_after)
    filled = _run(graph, delay, choices, guide, leaning, column, open_for, *fronts, steps, origin, place)
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    cost = front.spent[:filled] - front.end[:filled, column[last]] @ guide.price[last]
    return _trace_back(guide.order, origin, place, int(np.argmin(cost)))


@compiled
def _run(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    guide: Guide,
    leaning: float,
    column: Indices,
    open_for: Indices,
    front: Front,
    other: Front,
    steps: Steps,
    origin: Indices,
    place: Indices,
) -> int:
    """Take activity after activity; return how many partial plans have become whole ones."""
    filled = number(1)
    for turn in range(len(guide.order)):
        activity = guide.order[turn]
        for at in range(len(steps.seat)):
            steps.seat[at] = -1
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[row]] -= 1
        size = number(0)
        for old in range(filled):
            begin, spent, strain, code = begin_after(
                graph.first_before[activity],
                graph.first_before[activity + 1],
                graph.before,
                graph.before_arc,
                column,
                open_for,
                delay,
                guide.toll,
                guide.price,
                guide.end,
                front.end,
                old,
                front.spent[old],
                front.strain[old],
                front.code[old],
            )
            low = guide.low[activity]
            if begin + choices.length[low] > guide.due[activity]:
                low = slowest_within(choices, activity, guide.due[activity] - begin)
            size = try_options(
                begin,
                spent,
                strain,
                code,
                old,
                low,
                guide.high[activity],
                guide.due[activity],
                guide.end[activity],
                guide.price[activity],
                leaning,
                column[activity],
                choices.length,
                choices.cost,
                steps.old,
                steps.place,
                steps.end,
                steps.spent,
                steps.strain,
                steps.code,
                steps.worth,
                steps.seat,
                size,
            )
        filled = keep_best(front, steps, size, column[activity], other, origin, place, turn)
        front, other = other, front
    return filled


def columns_of(graph: Graph, order: Indices, column: Indices) -> int:
    """Give every activity a column that no other open one has, in place; return how many there are."""
    return int(_columns(graph, order, column, np.diff(graph.first_after), np.empty_like(column)))


@compiled
def _columns(graph: Graph, order: Indices, column: Indices, open_for: Indices, free: Indices) -> int:
    freed, columns = 0, 0
    for activity in order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            open_for[before] -= 1
            if open_for[before] == 0:
                free[freed] = column[before]
                freed += 1
        if freed > 0:
            freed -= 1
            column[activity] = free[freed]
        else:
            column[activity] = columns
            columns += 1
    return columns


@compiled
def _trace_back(order: Indices, origin: Indices, place: Indices, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = place[turn, last]
        last = origin[turn, last]
    return chosen
