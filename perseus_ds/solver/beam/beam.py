"""A place for every activity, in the order of the relaxed plan: the best partial plans go on side by side."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower
# `_continued` and `_try_places` are one loop each, long by a line for every array that they hand on.

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices, slowest_within
from perseus_ds.solver.beam.columns import columns_of
from perseus_ds.solver.beam.front import (
    Codes,
    Front,
    Steps,
    begin_after,
    front_for,
    keep_best,
    level_code,
    seated,
    steps_for,
    time_code,
)
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiling.compiled import compiled, inlined, inner, number
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints

HASTE = 10_000.0
"""How much dearer a change is that comes before the dwell is over: made only where it must be."""


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


class Outlook(NamedTuple):
    """What every lane has to pay yet, by its place in its order and its level there, and for a change there.

    Shape: ``ahead`` [lanes, longest order + 1, levels]; ``toll`` [lanes, longest order + 1].
    """

    ahead: Floats
    toll: Floats


def beam(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    guide: Guide,
    width: int,
    leaning: float,
    levels: Levels | None = None,
    outlook: Outlook | None = None,
) -> Indices:
    """Choose a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative: of every
    option, what it costs at the flow's price above the best; of every wait, its toll. So partial plans over
    the same activities compare fairly, and ``width`` of them go on. ``leaning`` is the share of the strain
    that counts against one: ends out of step will cost tolls later. Where changes of level cost, so does what
    every lane still has to pay from its level on: one that has paid for a change and one that has not yet
    compare fairly.

    Shape: returns [activities].
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    levels = Levels.none(count, len(choices.length)) if levels is None else levels
    outlook = Outlook(np.zeros((0, 1, 1)), np.zeros((0, 1))) if outlook is None else outlook
    lanes = len(outlook.toll)
    column = np.empty(count, dtype=np.int32)
    columns = columns_of(graph, guide.order, column)
    fronts = front_for(width, columns, lanes), front_for(width, columns, lanes)
    fronts[0].togo[0] = outlook.ahead[:, 0].min(axis=1).sum() if lanes else 0.0
    steps = steps_for(width * int((guide.high - guide.low).max() + 2))
    origin, place = np.empty((2, count, width), dtype=np.int32)
    open_for = np.diff(graph.first_after)
    filled = _run(
        graph,
        delay,
        choices,
        levels,
        guide,
        outlook,
        leaning,
        column,
        open_for,
        *fronts,
        steps,
        origin,
        place,
    )
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] + front.togo[:filled] - front.end[:filled, column[last]] @ guide.price[last]
    return _trace_back(guide.order, origin, place, int(np.argmin(paid)))


@compiled
def _run(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    levels: Levels,
    guide: Guide,
    outlook: Outlook,
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
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[row]] -= 1
        size = _continued(
            graph,
            delay,
            choices,
            levels,
            guide,
            outlook,
            leaning,
            column,
            open_for,
            front,
            filled,
            steps,
            activity,
        )
        filled = keep_best(
            front,
            steps,
            size,
            column[activity],
            levels.lane[activity],
            levels.level,
            other,
            origin[turn],
            place[turn],
        )
        front, other = other, front
    return filled


@inner
def _continued(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    levels: Levels,
    guide: Guide,
    outlook: Outlook,
    leaning: float,
    column: Indices,
    open_for: Indices,
    front: Front,
    filled: int,
    steps: Steps,
    activity: int,
) -> int:
    """Try the places around the relaxed one, and that of the lane's level, behind every partial plan."""
    for at in range(len(steps.seat)):
        steps.seat[at] = -1
    lane = levels.lane[activity]
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
        here, since, togo, toll, kept = -1, 0, front.togo[old], 0.0, -1
        if lane >= 0:
            here, since = front.level[old, lane], front.since[old, lane]
            toll = outlook.toll[lane, levels.at[activity]]
            kept = levels.place[levels.table[activity], here] if here >= 0 else -1
            if here >= 0:
                togo -= outlook.ahead[lane, levels.at[activity], here]
            else:
                togo -= outlook.ahead[lane, levels.at[activity]].min()
        size = _try_places(
            begin,
            spent,
            strain,
            code,
            togo,
            old,
            low,
            high,
            kept,
            guide.due[activity],
            guide.end[activity],
            guide.price[activity],
            leaning,
            column[activity],
            lane,
            here,
            since,
            levels.dwell,
            toll,
            outlook.ahead,
            levels.at[activity] + 1,
            levels.level,
            choices.length,
            choices.cost,
            steps.old,
            steps.place,
            steps.end,
            steps.since,
            steps.spent,
            steps.strain,
            steps.togo,
            steps.worth,
            steps.scratch,
            steps.code,
            steps.seat,
            size,
        )
    return size


@inlined
def _try_places(
    begin: int,
    spent: float,
    strain: float,
    code: np.uint64,
    togo: float,
    old: int,
    low: int,
    high: int,
    kept: int,
    due: int,
    wish: int,
    price: float,
    leaning: float,
    column: int,
    lane: int,
    here: int,
    since: int,
    dwell: int,
    toll: float,
    ahead: Floats,
    following: int,
    level: Indices,
    length: Ints,
    cost: Floats,
    to_old: Indices,
    to_place: Indices,
    to_end: Ints,
    to_since: Ints,
    to_spent: Floats,
    to_strain: Floats,
    to_togo: Floats,
    to_worth: Floats,
    to_total: Floats,
    to_code: Codes,
    seat: Indices,
    size: int,
) -> int:
    """Append what continues one partial plan; of two with the same ends and levels keep the better."""
    first = low - 1 if kept >= 0 and not low <= kept <= high else low
    for step in range(first, high + 1):
        place = kept if step < low else step
        end = begin + length[place]
        if end > due:
            if step < low:
                continue
            break
        paid, after, changed = spent + cost[place] + price * length[place], togo, since
        mixed = code ^ time_code(column, end)
        if lane >= 0:
            to = level[place]
            if here >= 0 and to != here:
                changed = begin
                paid += toll * (HASTE if changed - since < dwell else 1.0)
            after += ahead[lane, following, to]
            mixed ^= level_code(lane, to) ^ level_code(lane, here)
        at = seated(seat, to_code, mixed)
        row = seat[at]
        if row < 0:
            row = seat[at] = size
            size += 1
        elif paid + after >= to_total[row]:
            continue
        to_old[row], to_place[row], to_end[row], to_since[row] = old, place, end, changed
        to_spent[row], to_togo[row], to_code[row], to_total[row] = paid, after, mixed, paid + after
        to_strain[row] = strain + price * abs(end - wish)
        to_worth[row] = paid + after + leaning * to_strain[row]
    return size


@compiled
def _trace_back(order: Indices, origin: Indices, place: Indices, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = place[turn, last]
        last = origin[turn, last]
    return chosen
