"""Levels for every activity, in the order of the relaxed plan: a beam that looks ahead along each lane."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled, inlined, number
from perseus_ds.solver.discrete.beam import Guide, columns_of
from perseus_ds.solver.discrete.choices import Choices, slowest_within
from perseus_ds.solver.discrete.front import Front, Steps, begin_after, front_for, steps_for, time_code
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.held import (
    HASTE,
    Held,
    Taken,
    held_for,
    keep_best,
    lengthened,
    level_code,
    take,
    taken_for,
)
from perseus_ds.solver.timeline.lanes import Levels


def levels_along(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    levels: Levels,
    guide: Guide,
    ahead: Floats,
    toll: Floats,
    width: int,
    leaning: float,
) -> tuple[Indices, Ints]:
    """Choose a place for every activity, and how long it runs on at the level before; none ends too late.

    Partial plans are compared by what they have paid above the relaxed bound, tolls of their changes
    included, by the strain, and by what every lane still has to pay from its level on (``outlook``): so one
    that has paid for a change and one that has not yet compare fairly.

    Shape: ``ahead`` [lanes, places in the order + 1, levels]; ``toll`` [lanes]; returns [activities] twice.
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    column = np.empty(count, dtype=np.int32)
    columns = columns_of(graph, guide.order, column)
    fronts = front_for(width, columns), front_for(width, columns)
    helds = held_for(width, len(toll)), held_for(width, len(toll))
    helds[0].togo[0] = ahead[:, 0].min(axis=1).sum()
    size = width * int((guide.high - guide.low).max() + 3)
    steps, taken = steps_for(size), taken_for(size)
    origin, place = np.empty((2, count, width), dtype=np.int32)
    late = np.zeros((count, width), dtype=np.int64)
    open_for = np.diff(graph.first_after)
    filled = _run(
        graph, delay, choices, levels, guide, ahead, toll, leaning, column, open_for,
        *fronts, *helds, steps, taken, origin, place, late,
    )  # fmt: skip
    front, held = fronts[count % 2], helds[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] + held.togo[:filled] - front.end[:filled, column[last]] @ guide.price[last]
    return _trace_back(guide.order, origin, place, late, int(np.argmin(paid)))


@compiled
def _run(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    levels: Levels,
    guide: Guide,
    ahead: Floats,
    toll: Floats,
    leaning: float,
    column: Indices,
    open_for: Indices,
    front: Front,
    other: Front,
    held: Held,
    other_held: Held,
    steps: Steps,
    taken: Taken,
    origin: Indices,
    place: Indices,
    late: Ints,
) -> int:
    """Take activity after activity; return how many partial plans have become whole ones."""
    filled = number(1)
    for turn in range(len(guide.order)):
        activity = guide.order[turn]
        steps.seat[:] = -1
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
            low, high = guide.low[activity], guide.high[activity]
            if begin + choices.length[low] > guide.due[activity]:
                low = slowest_within(choices, activity, guide.due[activity] - begin)
                high = min(high, low + guide.high[activity] - guide.low[activity])
            kept = _kept_place(levels, held, activity, old)
            size = _try_places(
                choices, levels, guide, held, steps, taken, ahead, toll, leaning, column[activity],
                activity, old, begin, spent, strain, code, low, high, kept, size,
            )  # fmt: skip
        lane = levels.lane[activity]
        filled = keep_best(
            front, held, steps, taken, size, column[activity], lane, levels.level, other, other_held,
            origin, place, late, turn,
        )  # fmt: skip
        front, other = other, front
        held, other_held = other_held, held
    return filled


@inlined
def _kept_place(levels: Levels, held: Held, activity: int, old: int) -> int:
    """The place at which a lane keeps its level; -1 where there is none."""
    lane = levels.lane[activity]
    if lane < 0 or held.level[old, lane] < 0:
        return -1
    return int(levels.place[levels.table[activity], held.level[old, lane]])


@inlined
def _try_places(  # noqa: C901 - one pass over the places, as flat as the compiler wants it
    choices: Choices,
    levels: Levels,
    guide: Guide,
    held: Held,
    steps: Steps,
    taken: Taken,
    ahead: Floats,
    toll: Floats,
    leaning: float,
    column: int,
    activity: int,
    old: int,
    begin: int,
    spent: float,
    strain: float,
    code: np.uint64,
    low: int,
    high: int,
    kept: int,
    size: int,
) -> int:
    """Append what continues one partial plan: places around the relaxed one, and that of its lane's level."""
    lane, at, price = levels.lane[activity], levels.at[activity], guide.price[activity]
    here, since, togo, row = -1, 0, held.togo[old], levels.place[levels.table[activity]]
    if lane >= 0:
        here, since = held.level[old, lane], held.since[old, lane]
        before = ahead[lane, at, here]
        if here < 0:
            before = ahead[lane, 0].min()
        togo -= before
    for step in range(low - 1, high + 1):
        place = step
        if step < low:
            if kept < 0 or (low <= kept <= high):
                continue
            place = kept
        length, cost, late = choices.length[place], choices.cost[place], 0
        changed, after = since, togo
        if lane >= 0:
            to = levels.level[place]
            if here >= 0 and to != here:
                length, cost, late = lengthened(
                    choices, levels, row, place, here, begin - held.left[old, lane]
                )
                if length < 0:
                    continue
                changed = begin + late
                cost += toll[lane] * (HASTE if changed - since < levels.dwell else 1.0)
            after += ahead[lane, at + 1, to]
        end = begin + length
        if end > guide.due[activity]:
            continue
        mixed = code ^ time_code(column, end)
        if lane >= 0:
            mixed ^= level_code(lane, levels.level[place]) ^ level_code(lane, here)
        paid = spent + cost + price * length
        to_row, size = take(steps, size, mixed, paid + after)
        if to_row < 0:
            continue
        steps.old[to_row], steps.place[to_row], steps.end[to_row] = old, place, end
        steps.spent[to_row], steps.code[to_row], steps.scratch[to_row] = paid, mixed, paid + after
        steps.strain[to_row] = strain + price * abs(end - guide.end[activity])
        steps.worth[to_row] = paid + after + leaning * steps.strain[to_row]
        taken.late[to_row], taken.since[to_row], taken.togo[to_row] = late, changed, after
    return size


@compiled
def _trace_back(
    order: Indices, origin: Indices, place: Indices, late: Ints, last: int
) -> tuple[Indices, Ints]:
    chosen, ticks = np.empty(len(order), dtype=np.int32), np.zeros(len(order), dtype=np.int64)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]], ticks[order[turn]] = place[turn, last], late[turn, last]
        last = origin[turn, last]
    return chosen, ticks
