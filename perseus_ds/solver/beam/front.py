"""Partial plans over the same activities side by side, and the best of what continues them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints

Codes = NDArray[np.uint64]

LONG_AGO = -(2**61)
"""When the level before the first change was taken."""


class Front(NamedTuple):
    """Partial plans over the same activities, distinguished by when the open ones end and where lanes are.

    An activity is open until all its followers have begun; ``end`` has a row for each that can be open at
    once. ``spent``: by how much the plan is above the relaxed bound whatever follows, apart from a constant.
    ``strain``: how far its open ends are from the relaxed ones, weighed with the flow. ``togo``: what all
    lanes have to pay yet. ``code``: equal where all ends and states are. ``state`` is that of each lane,
    ``since`` when its level was taken.

    Shape: ``end`` [rows, plans]; ``state``, ``since`` [lanes, plans]; the others [plans].
    """

    end: Ints
    spent: Floats
    strain: Floats
    togo: Floats
    code: Codes
    state: Indices
    since: Ints


def front_for(width: int, rows: int, home: Indices) -> Front:
    """Allocate; the first plan is the empty one, with every lane in its own state of ``home``."""
    spent, strain, togo = np.zeros((3, width))
    return Front(
        end=np.zeros((rows, width), dtype=np.int64),
        spent=spent,
        strain=strain,
        togo=togo,
        code=np.zeros(width, dtype=np.uint64),
        state=np.repeat(home[:, None], width, axis=1),
        since=np.full((len(home), width), LONG_AGO, dtype=np.int64),
    )


class Eve(NamedTuple):
    """Every partial plan just before one more activity: when that begins, and the plan without it.

    ``code`` and ``strain`` are those of the ends that stay open, ``togo`` leaves out the activity's lane. The
    lane is in ``state`` and at ``level`` since ``since``. A change costs ``fee`` and leaves it in the state
    ``changed`` and as many more as the new level states.

    Shape: [plans].
    """

    begin: Ints
    spent: Floats
    strain: Floats
    togo: Floats
    code: Codes
    state: Indices
    since: Ints
    level: Indices
    changed: Indices
    fee: Floats


class Steps(NamedTuple):
    """What may continue the plans of a front: for all of them one place after the other, and its worth.

    Shape: [steps].
    """

    place: Indices
    worth: Floats
    scratch: Floats


class Seats(NamedTuple):
    """Steps with ends and states that no other has; ``seat`` finds them by their code.

    ``state`` and ``since`` are those of the activity's lane.

    Shape: ``seat`` [a power of two]; the others [steps].
    """

    old: Indices
    place: Indices
    end: Ints
    spent: Floats
    togo: Floats
    worth: Floats
    state: Indices
    since: Ints
    code: Codes
    seat: Indices


class Workspace(NamedTuple):
    """What a beam writes on."""

    eve: Eve
    steps: Steps
    seats: Seats


def scratch_for(width: int, places: int) -> Workspace:
    """Allocate for so many plans and so many places behind each."""
    size = width * places

    def ints(count: int) -> Ints:
        return np.empty(count, dtype=np.int64)

    def indices(count: int) -> Indices:
        return np.empty(count, dtype=np.int32)

    def codes(count: int) -> Codes:
        return np.empty(count, dtype=np.uint64)

    begin, spent, strain, togo, code = ints(width), *np.empty((3, width)), codes(width)
    state, since, level, changed = indices(width), ints(width), indices(width), indices(width)
    eve = Eve(begin, spent, strain, togo, code, state, since, level, changed, np.empty(width))
    old, place, end, paid, left, worth = indices(size), indices(size), ints(size), *np.empty((3, size))
    seat = indices(2 ** (2 * size - 1).bit_length())
    seats = Seats(old, place, end, paid, left, worth, indices(size), ints(size), codes(size), seat)
    return Workspace(eve, Steps(indices(size), *np.empty((2, size))), seats)


@inner
def time_code(row: int, end: int) -> np.uint64:
    """Mix a row and a time into a code; codes of several rows are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(row) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


@inner
def level_code(lane: int, level: int) -> np.uint64:
    """A code of one lane's level; joined with those of the ends by exclusive or."""
    return time_code(lane + (1 << 20), level + 1)


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


def rows_of(graph: Graph, order: Indices, row_of: Indices) -> int:
    """Give every activity a row of a front that no other open one has, in place; return how many."""
    return int(_rows(graph, order, row_of, np.diff(graph.first_after), np.empty_like(row_of)))


@compiled
def _rows(graph: Graph, order: Indices, row_of: Indices, open_for: Indices, free: Indices) -> int:
    freed, rows = 0, 0
    for activity in order:
        for at in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[at]
            open_for[before] -= 1
            if open_for[before] == 0:
                free[freed] = row_of[before]
                freed += 1
        if freed > 0:
            freed -= 1
            row_of[activity] = free[freed]
        else:
            row_of[activity] = rows
            rows += 1
    return rows
