"""Which changes of a plan may move into an activity, and which activities may change once more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiled import tiered
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.lanes import Lanes

Flags = NDArray[np.bool_]


class Freedom(NamedTuple):
    """The two options of each activity; where they differ, any share of its work may be done at the first.

    Shape: [activities] each.
    """

    choice: Indices
    other: Indices


class Stand(NamedTuple):
    """A plan, lane behind lane: the levels that activities begin and end at, and those around them.

    ``row`` has the places of an activity's levels, ``is_last`` states where a lane ends.

    Shape: ``row`` [activities of lanes, levels]; the others [activities of lanes].
    """

    order: Indices
    lane: Indices
    begin: Indices
    end: Indices
    before: Indices
    after: Indices
    row: Indices
    is_last: Flags


class Moves(NamedTuple):
    """Changes that may fall inside an activity: what that begins and ends at, and what it adds to a lane.

    ``worth`` is what the relaxed optimum's price sees between the two: little where it wants a mixture.
    ``takes_before`` and ``takes_after`` are the boundaries around it that it takes for itself.

    Shape: [moves].
    """

    worth: Floats
    at: Ints
    first: Indices
    last: Indices
    more: Indices
    takes_before: Flags
    takes_after: Flags


def freedom_of(
    choices: Choices,
    lanes: Lanes,
    levels: Levels,
    places: tuple[Indices, Indices],
    *,
    price: Floats,
    spare: Ints,
) -> Freedom:
    """Return which changes may move, and which activities may change once more.

    A change between two activities may fall into the one before it or the one behind it. An activity may go
    on at the level beside its own where its lane has changes to spare. Those come first that the price is
    most indifferent about; what is split already stays so.

    Shape: ``places`` that activities begin and end at, ``price`` [activities]; ``spare`` [lanes]: changes
    that a lane may still make.
    """
    choice, other = (choices.option[place] for place in places)
    stand = _stand(lanes, levels, places)
    moves = _moves(choices, stand, price)
    taken = _taken(moves, stand.lane, spare.copy())
    at, first, last = moves.at[taken], moves.first[taken], moves.last[taken]
    choice[stand.order[at]] = choices.option[stand.row[at, first]]
    other[stand.order[at]] = choices.option[stand.row[at, last]]
    return Freedom(choice, other)


def _stand(lanes: Lanes, levels: Levels, places: tuple[Indices, Indices]) -> Stand:
    order = np.concatenate(lanes.orders)
    lane = np.repeat(np.arange(len(lanes), dtype=np.int32), list(map(len, lanes.orders)))
    is_last = np.append(lane[1:] != lane[:-1], np.True_)
    begin, end = (levels.level[place[order]] for place in places)
    before = np.where(np.roll(is_last, 1), begin, np.roll(end, 1))
    after = np.where(is_last, end, np.roll(begin, -1))
    return Stand(order, lane, begin, end, before, after, levels.place[levels.table[order]], is_last)


def _moves(choices: Choices, stand: Stand, price: Floats) -> Moves:
    """All changes that may fall inside an activity that is whole, the most indifferent ones first."""
    row, here, every = stand.row, stand.begin, np.arange(len(stand.order))
    worth = choices.cost[row] + price[stand.order][:, None] * choices.length[row]
    apart = np.where(row >= 0, np.abs(worth - worth[every, here][:, None]), np.inf)
    whole, inner = here == stand.end, ~stand.is_last
    more = np.where(stand.after == here, 2, 1).astype(np.int32)
    columns = []
    for level, into, allowed, adds, takes in (
        (stand.before, True, stand.before != here, 0 * more, (True, False)),
        (stand.after, False, stand.after != here, 0 * more, (False, True)),
        *((level, False, inner & (level != stand.after), more, (True, True)) for level in _beside(row, here)),
    ):
        at = np.flatnonzero(whole & allowed & (level >= 0) & (row[every, level] >= 0))
        first, last = (level, here) if into else (here, level)
        flags = (np.full(len(at), taken) for taken in takes)
        columns.append((apart[at, level[at]], at, first[at], last[at], adds[at], *flags))
    moves = Moves(*map(np.concatenate, zip(*columns, strict=True)))
    ranks = np.lexsort((moves.last, moves.first, moves.at, moves.worth))
    return Moves._make(column[ranks] for column in moves)


def _beside(row: Indices, level: Indices) -> tuple[Indices, Indices]:
    """The next higher and the next lower level that each activity has; below zero if it has no such level.

    Shape: ``row`` [activities, levels]; returns [activities] twice.
    """
    width = row.shape[1]
    number = np.broadcast_to(np.arange(width, dtype=np.int32), row.shape)
    higher = np.where((row >= 0) & (number < level[:, None]), number, -1).max(axis=1)
    lower = np.where((row >= 0) & (number > level[:, None]), number, width).min(axis=1)
    return higher, np.where(lower < width, lower, -1).astype(np.int32)


@tiered
def _taken(moves: Moves, lane: Indices, spare: Ints) -> Flags:
    """Take one move after the other where its lane can bear it, and nothing around it is taken.

    Shape: returns [moves].
    """
    count = len(lane)
    is_mixed, is_held = np.zeros(count, np.bool_), np.zeros(count + 1, np.bool_)
    taken = np.zeros(len(moves.at), np.bool_)
    for which in range(len(moves.at)):
        at, more = moves.at[which], moves.more[which]
        before, after = moves.takes_before[which], moves.takes_after[which]
        if is_mixed[at] or more > spare[lane[at]] or (before and is_held[at]) or (after and is_held[at + 1]):
            continue
        taken[which] = is_mixed[at] = True
        is_held[at] |= before
        is_held[at + 1] |= after
        spare[lane[at]] -= more
    return taken
