"""Real options in the order of the relaxed plan: many partial plans side by side, priced by its flow."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.choices import Choices, slowest_within
from perseus_ds.solver.compiled import compiled, inlined, inner
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints

Codes = NDArray[np.uint64]


class Guide(NamedTuple):
    """The relaxed optimum at one time, as a beam reads it.

    ``order``: activities by relaxed start; ``end``: relaxed ends; ``due``: latest ends from which the rest
    can keep the wanted time at its fastest; ``price``: the flow, cost per tick of duration; ``toll``: cost
    per tick of waiting; ``low`` to ``high``: the places that are tried.

    Units: ticks; cost per tick.
    Shape: ``toll`` [precedences]; the others [activities].
    """

    order: Indices
    end: Ints
    due: Ints
    price: Floats
    toll: Floats
    low: Indices
    high: Indices


class Front(NamedTuple):
    """Partial plans over the same activities, told apart by when the open ones end.

    An activity is open until all its followers have begun; ``end`` has a column for each that can be open
    at once. ``spent``: by how much the plan is above the relaxed bound whatever follows, apart from a
    constant; ``strain``: how far its open ends are from the relaxed ones, weighed with the flow; ``code``:
    equal where all ends are.

    Shape: ``end`` [plans, columns]; the others [plans].
    """

    end: Ints
    spent: Floats
    strain: Floats
    code: Codes


def front_for(width: int, columns: int) -> Front:
    """Allocate; the first plan is the empty one."""
    end, spent = np.zeros((width, columns), dtype=np.int64), np.zeros(width)
    return Front(end, spent, np.zeros_like(spent), np.zeros(width, dtype=np.uint64))


class Steps(NamedTuple):
    """What continues the partial plans of a front: the activity's end, and the place it was given.

    Shape: [steps]; ``seat`` [a power of two], the steps by their code.
    """

    old: Indices
    place: Indices
    end: Ints
    spent: Floats
    strain: Floats
    code: Codes
    worth: Floats
    scratch: Floats
    seat: Indices


def steps_for(size: int) -> Steps:
    """Allocate for ``size`` steps, with twice as many seats."""
    seats = 2 ** (2 * size - 1).bit_length()
    old, place = np.empty((2, size), dtype=np.int32)
    end, code = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.uint64)
    spent, strain, worth, scratch = np.empty((4, size))
    seat = np.empty(seats, dtype=np.int32)
    return Steps(old, place, end, spent, strain, code, worth, scratch, seat)


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
    columns = _columns(graph, guide.order, column, np.diff(graph.first_after), np.empty_like(column))
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
    filled = 1
    for turn in range(len(guide.order)):
        activity = guide.order[turn]
        for at in range(len(steps.seat)):
            steps.seat[at] = -1
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[row]] -= 1
        size = 0
        for old in range(filled):
            begin, spent, strain, code = _begin(
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
            size = _try(
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
        filled = _keep(front, steps, size, column[activity], other, origin, place, turn)
        front, other = other, front
    return filled


@compiled
def _columns(graph: Graph, order: Indices, column: Indices, open_for: Indices, free: Indices) -> int:
    """Give every activity a column that no other open one has; return how many there are."""
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


@inlined
def _code(column: int, end: int) -> np.uint64:
    """Mix a column and a time into a code; codes of several columns are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(column) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


@inlined
def _begin(
    first: int,
    last: int,
    before: Indices,
    before_arc: Indices,
    column: Indices,
    open_for: Indices,
    delay: Ints,
    toll: Floats,
    price: Floats,
    wish: Ints,
    end: Ints,
    old: int,
    spent: float,
    strain: float,
    code: np.uint64,
) -> tuple[int, float, float, np.uint64]:
    """When the next activity can begin in one partial plan, the tolls paid, and who is open no more."""
    begin = 0
    for row in range(first, last):
        begin = max(begin, end[old, column[before[row]]] + delay[before_arc[row]])
    for row in range(first, last):
        who, arc = before[row], before_arc[row]
        ended = end[old, column[who]]
        spent += toll[arc] * (begin - ended - delay[arc])
        if open_for[who] == 0:
            strain -= price[who] * abs(ended - wish[who])
            code ^= _code(column[who], ended)
    return begin, spent, strain, code


@inlined
def _try(
    begin: int,
    spent: float,
    strain: float,
    code: np.uint64,
    old: int,
    low: int,
    high: int,
    due: int,
    wish: int,
    price: float,
    leaning: float,
    column: int,
    length: Ints,
    cost: Floats,
    to_old: Indices,
    to_place: Indices,
    to_end: Ints,
    to_spent: Floats,
    to_strain: Floats,
    to_code: Codes,
    to_worth: Floats,
    seat: Indices,
    size: int,
) -> int:
    """Append what continues one partial plan; of two with the same ends keep the better."""
    for place in range(low, high + 1):
        end = begin + length[place]
        if end > due:
            break
        paid = spent + cost[place] + price * length[place]
        mixed = code ^ _code(column, end)
        at = np.int64(mixed & np.uint64(len(seat) - 1))
        while seat[at] >= 0 and to_code[seat[at]] != mixed:
            at = (at + 1) & (len(seat) - 1)
        to = seat[at]
        if to < 0:
            to = seat[at] = size
            size += 1
        elif paid >= to_spent[to]:
            continue
        to_old[to], to_place[to], to_end[to], to_spent[to], to_code[to] = old, place, end, paid, mixed
        to_strain[to] = strain + price * abs(end - wish)
        to_worth[to] = paid + leaning * to_strain[to]
    return size


@inner
def _nth(values: Floats, size: int, rank: int) -> float:
    """Return the value of that rank, least first; the values are left in another order.

    Source: Hoare 1961, FIND.
    """
    low, high = 0, size - 1
    while low < high:
        middle, left, right = values[(low + high) >> 1], low, high
        while left <= right:
            while values[left] < middle:
                left += 1
            while values[right] > middle:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return float(values[rank])


@inner
def _keep(
    front: Front, steps: Steps, size: int, column: int, new: Front, origin: Indices, place: Indices, turn: int
) -> int:
    """Copy the best continuations into the new front; return how many."""
    width, bar, filled = len(new.spent), np.inf, 0
    if size > width:
        for at in range(size):
            steps.scratch[at] = steps.worth[at]
        bar = _nth(steps.scratch, size, width - 1)
    for at in range(size):
        if steps.worth[at] > bar or filled == width:
            continue
        old = steps.old[at]
        origin[turn, filled], place[turn, filled] = old, steps.place[at]
        for other in range(new.end.shape[1]):
            new.end[filled, other] = front.end[old, other]
        new.end[filled, column] = steps.end[at]
        new.spent[filled], new.strain[filled] = steps.spent[at], steps.strain[at]
        new.code[filled] = steps.code[at]
        filled += 1
    return filled


@compiled
def _trace_back(order: Indices, origin: Indices, place: Indices, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = place[turn, last]
        last = origin[turn, last]
    return chosen
