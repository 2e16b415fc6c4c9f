"""Partial plans with lanes: at which level each lane is, since when, and what its future costs at least."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import inlined, inner
from perseus_ds.solver.discrete.choices import Choices
from perseus_ds.solver.discrete.front import Front, Steps, nth, time_code
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.lanes import Levels

HASTE = 10_000.0
"""How much dearer a change is that comes before the dwell is over: made only where it must be."""

LONG_AGO = -(2**61)
"""When the level before the first change was taken."""


class Held(NamedTuple):
    """What a front of partial plans knows of the lanes, row by row as ``Front``.

    ``level`` is -1 before a lane's first activity; ``left`` is the end of its last activity, ``since`` the
    time of its last change; ``togo`` the sum of the lanes' outlooks.

    Shape: ``level``, ``left``, ``since`` [plans, lanes]; ``togo`` [plans].
    """

    level: Indices
    left: Ints
    since: Ints
    togo: Floats


class Taken(NamedTuple):
    """What a step does to its lane, beside ``Steps``: ticks spent at the old level, and the new outlook.

    Shape: [steps].
    """

    late: Ints
    since: Ints
    togo: Floats


def held_for(width: int, lanes: int) -> Held:
    """Allocate; in the first plan nothing has run yet."""
    level = np.full((width, lanes), -1, dtype=np.int32)
    left, since = np.zeros((2, width, lanes), dtype=np.int64)
    since[:] = LONG_AGO
    return Held(level, left, since, np.zeros(width))


def taken_for(size: int) -> Taken:
    """Allocate for ``size`` steps."""
    late, since = np.zeros((2, size), dtype=np.int64)
    return Taken(late, since, np.zeros(size))


@inlined
def lengthened(
    choices: Choices, levels: Levels, row: Indices, place: int, here: int, waited: int
) -> tuple[int, float, int]:
    """Ticks and cost of an activity at a place when its lane comes from level ``here``, and ticks at that.

    A lane that goes down is at its old level until the lag is over, counted from the end of what ran before.
    Length -1: the activity would be over before.
    """
    length, cost, late = choices.length[place], choices.cost[place], 0
    if here >= 0 and levels.level[place] > here:
        late = max(levels.lag - waited, 0)
        if late > 0:
            if row[here] < 0 or late >= choices.length[row[here]]:
                return -1, cost, late
            share = late / choices.length[row[here]]
            length = late + int((1.0 - share) * length)
            cost = share * choices.cost[row[here]] + (1.0 - share) * cost
    return length, cost, late


@inlined
def take(steps: Steps, size: int, code: np.uint64, total: float) -> tuple[int, int]:
    """Find a step with the same ends and levels: the row to write (-1: it is better), and the steps then."""
    seats = np.uint64(len(steps.seat) - 1)
    at = np.int64(code & seats)
    while steps.seat[at] >= 0 and steps.code[steps.seat[at]] != code:
        at = np.int64(np.uint64(at + 1) & seats)
    to = int(steps.seat[at])
    if to < 0:
        steps.seat[at] = size
        return size, size + 1
    if total >= steps.scratch[to]:
        return -1, size
    return to, size


@inner
def keep_best(
    front: Front,
    held: Held,
    steps: Steps,
    taken: Taken,
    size: int,
    column: int,
    lane: int,
    level: Indices,
    new: Front,
    new_held: Held,
    origin: Indices,
    place: Indices,
    late: Ints,
    turn: int,
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
        origin[turn, filled], place[turn, filled], late[turn, filled] = old, steps.place[at], taken.late[at]
        for other in range(new.end.shape[1]):
            new.end[filled, other] = front.end[old, other]
        new.end[filled, column] = steps.end[at]
        new.spent[filled], new.strain[filled], new.code[filled] = (
            steps.spent[at],
            steps.strain[at],
            steps.code[at],
        )
        for other in range(held.level.shape[1]):
            new_held.level[filled, other] = held.level[old, other]
            new_held.left[filled, other] = held.left[old, other]
            new_held.since[filled, other] = held.since[old, other]
        new_held.togo[filled] = taken.togo[at]
        if lane >= 0:
            new_held.level[filled, lane] = level[steps.place[at]]
            new_held.left[filled, lane] = steps.end[at]
            new_held.since[filled, lane] = taken.since[at]
        filled += 1
    return filled


@inlined
def level_code(lane: int, level: int) -> np.uint64:
    """A code of one lane's level; joined with those of the ends by exclusive or."""
    return time_code(lane + (1 << 20), level + 1)
