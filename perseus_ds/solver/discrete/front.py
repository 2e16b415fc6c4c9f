"""Partial plans over the same activities side by side, and what continues them."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiling.compiled import inlined, inner
from perseus_ds.solver.problem import Floats, Indices, Ints

Codes = NDArray[np.uint64]


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


@inlined
def time_code(column: int, end: int) -> np.uint64:
    """Mix a column and a time into a code; codes of several columns are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(column) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


@inlined
def begin_after(
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
            code ^= time_code(column[who], ended)
    return begin, spent, strain, code


@inlined
def try_options(
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
        mixed = code ^ time_code(column, end)
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
def nth(values: Floats, size: int, rank: int) -> float:
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
def keep_best(
    front: Front, steps: Steps, size: int, column: int, new: Front, origin: Indices, place: Indices, turn: int
) -> int:
    """Copy the best continuations into the new front; return how many."""
    width, bar, filled = len(new.spent), np.inf, 0
    if size > width:
        for at in range(size):
            steps.scratch[at] = steps.worth[at]
        bar = nth(steps.scratch, size, width - 1)
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
