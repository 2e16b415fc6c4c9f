"""Partial plans over the same activities side by side, and what continues them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiling.compiled import inlined, inner
from perseus_ds.solver.problem import Floats, Indices, Ints

Codes = NDArray[np.uint64]

LONG_AGO = -(2**61)
"""When the level before the first change was taken."""


class Front(NamedTuple):
    """Partial plans over the same activities, told apart by when the open ones end and where the lanes are.

    An activity is open until all its followers have begun; ``end`` has a column for each that can be open
    at once. ``spent``: by how much the plan is above the relaxed bound whatever follows, apart from a
    constant; ``strain``: how far its open ends are from the relaxed ones, weighed with the flow; ``togo``:
    what all lanes have to pay yet; ``code``: equal where all ends and states are. ``state`` is that of each
    lane, ``since`` when its level was taken.

    Shape: ``end`` [plans, columns]; ``state``, ``since`` [plans, lanes]; the others [plans].
    """

    end: Ints
    spent: Floats
    strain: Floats
    togo: Floats
    code: Codes
    state: Indices
    since: Ints


def front_for(width: int, columns: int, home: Indices) -> Front:
    """Allocate; the first plan is the empty one, with every lane in its own state of ``home``."""
    spent, strain, togo = np.zeros((3, width))
    return Front(
        end=np.zeros((width, columns), dtype=np.int64),
        spent=spent,
        strain=strain,
        togo=togo,
        code=np.zeros(width, dtype=np.uint64),
        state=np.tile(home, (width, 1)),
        since=np.full((width, len(home)), LONG_AGO, dtype=np.int64),
    )


class Steps(NamedTuple):
    """What continues the partial plans of a front: its end, its lane's state, the place it was given.

    Shape: [steps]; ``seat`` [a power of two], the steps by their code.
    """

    old: Indices
    place: Indices
    end: Ints
    state: Indices
    since: Ints
    spent: Floats
    strain: Floats
    togo: Floats
    worth: Floats
    scratch: Floats
    code: Codes
    seat: Indices


def steps_for(size: int) -> Steps:
    """Allocate for ``size`` steps, with twice as many seats."""
    old, place, state = np.empty((3, size), dtype=np.int32)
    end, since = np.empty((2, size), dtype=np.int64)
    spent, strain, togo, worth, scratch = np.empty((5, size))
    code = np.empty(size, dtype=np.uint64)
    seat = np.empty(2 ** (2 * size - 1).bit_length(), dtype=np.int32)
    return Steps(old, place, end, state, since, spent, strain, togo, worth, scratch, code, seat)


@inlined
def time_code(column: int, end: int) -> np.uint64:
    """Mix a column and a time into a code; codes of several columns are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(column) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


@inlined
def level_code(lane: int, level: int) -> np.uint64:
    """A code of one lane's level; joined with those of the ends by exclusive or."""
    return time_code(lane + (1 << 20), level + 1)


@inlined
def seated(seat: Indices, codes: Codes, code: np.uint64) -> int:
    """The seat of a code: taken by the step that has it, or free (negative)."""
    last = np.uint64(len(seat) - 1)
    at = np.int64(code & last)
    while seat[at] >= 0 and codes[seat[at]] != code:
        at = np.int64(np.uint64(at + 1) & last)
    return int(at)


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
def keep_best(  # noqa: PLR0917
    front: Front, steps: Steps, size: int, column: int, lane: int, new: Front, origin: Indices, place: Indices
) -> int:
    """Copy the best continuations into the new front; return how many.

    Shape: ``origin``, ``place`` [width], where each comes from.
    """
    worth, scratch, step_old, step_place = steps.worth, steps.scratch, steps.old, steps.place
    end, state, since = front.end, front.state, front.since
    new_end, new_state, new_since = new.end, new.state, new.since
    width, bar, filled = len(new.spent), np.inf, 0
    if size > width:
        scratch[:size] = worth[:size]
        bar = nth(scratch, size, width - 1)
    for at in range(size):
        if worth[at] > bar or filled == width:
            continue
        old = step_old[at]
        origin[filled], place[filled] = old, step_place[at]
        for other in range(new_end.shape[1]):
            new_end[filled, other] = end[old, other]
        new_end[filled, column] = steps.end[at]
        new.spent[filled], new.strain[filled] = steps.spent[at], steps.strain[at]
        new.togo[filled], new.code[filled] = steps.togo[at], steps.code[at]
        for other in range(new_state.shape[1]):
            new_state[filled, other], new_since[filled, other] = state[old, other], since[old, other]
        if lane >= 0:
            new_state[filled, lane], new_since[filled, lane] = steps.state[at], steps.since[at]
        filled += 1
    return filled
