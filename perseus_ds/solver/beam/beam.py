"""A place for every activity, in the order of the relaxed plan: the best partial plans go on side by side."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from perseus_ds.solver.beam.choices import Choices, slowest_within
from perseus_ds.solver.beam.columns import columns_of
from perseus_ds.solver.beam.front import (
    Front,
    Steps,
    front_for,
    keep_best,
    level_code,
    seated,
    steps_for,
    time_code,
)
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiling.compiled import compiled, inner, number
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
    """What every lane has to pay yet, by its place in its order and its state there, and for a change.

    A state is a level and how many changes are left: ``left * levels + level``; where changes are not
    counted none is ever left. Every lane begins in the state ``home``.

    Shape: ``ahead`` [lanes, longest order + 1, states]; ``toll``, ``home`` [lanes].
    """

    ahead: Floats
    toll: Floats
    home: Indices
    extra: float

    @classmethod
    def none(cls) -> Self:
        """No lanes."""
        return cls(np.zeros((0, 1, 1)), np.zeros(0), np.zeros(0, np.int32), 0.0)


class _Search(NamedTuple):
    """All that a beam reads.

    Shape: ``column`` [activities], where the ends of each stand in a front.
    """

    graph: Graph
    delay: Ints
    choices: Choices
    levels: Levels
    guide: Guide
    outlook: Outlook
    column: Indices
    leaning: float


def beam(  # noqa: PLR0917 - what is searched, and how
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
    every lane still has to pay from its state on: one that has paid for a change and one that has not yet
    compare fairly.

    Shape: returns [activities].
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    levels = Levels.none(count, len(choices.length)) if levels is None else levels
    outlook = Outlook.none() if outlook is None else outlook
    column = np.empty(count, dtype=np.int32)
    columns = columns_of(graph, guide.order, column)
    fronts = front_for(width, columns, outlook.home), front_for(width, columns, outlook.home)
    fronts[0].togo[0] = sum(outlook.ahead[lane, 0, state] for lane, state in enumerate(outlook.home))
    steps = steps_for(width * int((guide.high - guide.low).max() + 2))
    origin, place = np.empty((2, count, width), dtype=np.int32)
    search = _Search(graph, delay, choices, levels, guide, outlook, column, leaning)
    filled = _run(search, *fronts, steps, origin, place)
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] + front.togo[:filled] - front.end[:filled, column[last]] @ guide.price[last]
    return _trace_back(guide.order, origin, place, int(np.argmin(paid)))


@compiled
def _run(  # noqa: PLR0917
    search: _Search, front: Front, other: Front, steps: Steps, origin: Indices, place: Indices
) -> int:
    """Take activity after activity; return how many partial plans have become whole ones."""
    graph, levels = search.graph, search.levels
    open_for = graph.first_after[1:] - graph.first_after[:-1]
    filled = number(1)
    for turn in range(len(search.guide.order)):
        activity = search.guide.order[turn]
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[row]] -= 1
        size = _continued(search, open_for, front, filled, steps, activity)
        at, lane = search.column[activity], levels.lane[activity]
        filled = keep_best(front, steps, size, at, lane, other, origin[turn], place[turn])
        front, other = other, front
    return filled


@inner
def _continued(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop; records are read into locals before it
    search: _Search, open_for: Indices, front: Front, filled: int, steps: Steps, activity: int
) -> int:
    """Try the places around the relaxed one, and that of the lane's level, behind every partial plan.

    Of two with the same ends and states the better stays. Returns how many there are.
    """
    graph, choices, guide, levels, leaning = (
        search.graph,
        search.choices,
        search.guide,
        search.levels,
        search.leaning,
    )
    first, last = graph.first_before[activity], graph.first_before[activity + 1]
    before, before_arc, column, delay = graph.before, graph.before_arc, search.column, search.delay
    own_column, price, due, wish = (
        column[activity],
        guide.price[activity],
        guide.due[activity],
        guide.end[activity],
    )
    tolls, prices, ends, length, cost = guide.toll, guide.price, guide.end, choices.length, choices.cost
    lane, level_of, dwell, width = levels.lane[activity], levels.level, levels.dwell, levels.place.shape[1]
    toll, counted = 0.0, 0
    own, ahead, onward = (
        levels.place[levels.table[activity]],
        search.outlook.ahead[0:0, 0],
        search.outlook.ahead[0:0, 0],
    )
    if lane >= 0:
        toll = search.outlook.toll[lane]
        counted = width if search.outlook.ahead.shape[2] > width else 0
        at = levels.at[activity]
        ahead, onward = search.outlook.ahead[lane, at : at + 1], search.outlook.ahead[lane, at + 1 : at + 2]
    end, spent, strain, togo, code, state, since = front
    (
        to_old,
        to_place,
        to_end,
        to_state,
        to_since,
        to_spent,
        to_strain,
        to_togo,
        to_worth,
        to_total,
        to_code,
        seat,
    ) = steps
    seat[:] = -1
    size = number(0)
    for old in range(filled):
        begin = 0
        for row in range(first, last):
            begin = max(begin, end[old, column[before[row]]] + delay[before_arc[row]])
        base, strained, mixed = spent[old], strain[old], code[old]
        for row in range(first, last):
            who, arc = before[row], before_arc[row]
            ended = end[old, column[who]]
            base += tolls[arc] * (begin - ended - delay[arc])
            if open_for[who] == 0:
                strained -= prices[who] * abs(ended - ends[who])
                mixed ^= time_code(column[who], ended)
        low, high = guide.low[activity], guide.high[activity]
        if begin + length[low] > due:
            low = slowest_within(choices, activity, due - begin)
        here, was, held, rest, kept = -1, 0, 0, togo[old], -1
        if lane >= 0:
            was, held = state[old, lane], since[old, lane]
            here = was % width
            rest -= ahead[0, was]
            kept = own[here]
            mixed ^= level_code(lane, was)
        for step in range(low - 1 if kept >= 0 and not low <= kept <= high else low, high + 1):
            there = kept if step < low else step
            ended = begin + length[there]
            if ended > due:
                if step < low:
                    continue
                break
            paid, after, now, changed, said = (
                base + cost[there] + price * length[there],
                rest,
                was,
                held,
                mixed,
            )
            if lane >= 0:
                if level_of[there] != here:
                    now, changed = was - here - counted + level_of[there], begin
                    paid += toll * (HASTE if changed - held < dwell else 1.0)
                    if now < 0:
                        now += counted
                        paid += search.outlook.extra
                after += onward[0, now]
                said ^= level_code(lane, now)
            said ^= time_code(own_column, ended)
            seated_at = seated(seat, to_code, said)
            row = seat[seated_at]
            if row < 0:
                row = seat[seated_at] = size
                size += 1
            elif paid + after >= to_total[row]:
                continue
            to_old[row], to_place[row], to_end[row] = old, there, ended
            to_state[row], to_since[row] = now, changed
            to_spent[row], to_togo[row], to_code[row], to_total[row] = paid, after, said, paid + after
            to_strain[row] = strained + price * abs(ended - wish)
            to_worth[row] = paid + after + leaning * to_strain[row]
    return size


@compiled
def _trace_back(order: Indices, origin: Indices, place: Indices, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = place[turn, last]
        last = origin[turn, last]
    return chosen
