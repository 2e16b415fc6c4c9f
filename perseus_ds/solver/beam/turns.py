"""One activity after the other: what may continue every partial plan, and the best of it.

The beam's one loop and its steps, in the order in which they run.
"""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.front import Codes, Front, Workspace, level_code, nth, time_code
from perseus_ds.solver.beam.guide import Guide
from perseus_ds.solver.beam.levels import LaneOutlook, Levels
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import Graph
from perseus_ds.solver.problem import Indices, Ints

HASTE = 10_000.0
"""How much dearer a change is that comes before the dwell is over: made only where it must be."""

FAR = float(np.finfo(np.float64).max)
"""More than any step is worth: what is worth nothing is beyond every bar."""
SAMPLE = 5
"""One step in so many is looked at to guess the bar; no number of places in a row."""


class Search(NamedTuple):
    """All that a beam reads.

    Shape: ``row_of`` [activities], where the ends of each stand in a front.
    """

    graph: Graph
    delay: Ints
    choices: Choices
    levels: Levels
    guide: Guide
    outlook: LaneOutlook
    row_of: Indices
    leaning: float


class Turn(NamedTuple):
    """The activity whose turn it is: where its ends stand, what is tried, and its lane (-1: none).

    ``fastest`` is the first of its places; ``counted`` is how many levels there are, where changes are
    counted, else 0.
    """

    activity: int
    row: int
    price: float
    wish: int
    due: int
    fastest: int
    low: int
    high: int
    lane: int
    toll: float
    extra: float
    dwell: int
    levels: int
    counted: int


class Origins(NamedTuple):
    """Which plan each plan of each turn continues, and at which place.

    Shape: [turns, plans].
    """

    origin: Indices
    place: Indices


@compiled
def run(search: Search, front: Front, other: Front, scratch: Workspace, trail: Origins) -> int:
    """Take activity after activity; return how many partial plans have become whole ones."""
    graph, order = search.graph, search.guide.order
    open_for = graph.first_after[1:] - graph.first_after[:-1]
    filled = 1
    for at in range(len(order)):
        activity = order[at]
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[row]] -= 1
        turn = _turn_of(search, activity)
        _begin(search, turn, open_for, front, filled, scratch)
        size = _offer(search, turn, scratch, filled)
        _weigh(search, turn, scratch, filled, size)
        taken = _sift(search, turn, scratch, filled, size, len(front.spent))
        filled = _keep(turn, scratch, taken, front, other, trail, at)
        front, other = other, front
    return filled


@inner
def _turn_of(search: Search, activity: int) -> Turn:
    """Look up all that is the activity's own."""
    guide, levels, outlook, choices = search.guide, search.levels, search.outlook, search.choices
    lane, width = levels.lane[activity], levels.place.shape[1]
    return Turn(
        activity,
        search.row_of[activity],
        guide.price[activity],
        guide.end[activity],
        guide.due[activity],
        choices.first[activity],
        guide.low[activity],
        guide.high[activity],
        lane,
        outlook.toll[lane],
        outlook.extra,
        levels.dwell,
        width,
        width if outlook.ahead.shape[2] > width else 0,
    )


@inner
def _begin(
    search: Search, turn: Turn, open_for: Indices, front: Front, filled: int, scratch: Workspace
) -> None:
    """Begin the activity in every plan as soon as it can; what waits for it pays its tolls."""
    graph, delay, tolls, prices = search.graph, search.delay, search.guide.toll, search.guide.price
    begin, spent, strain, togo, code = scratch.eve[:5]
    first, last = graph.first_before[turn.activity], graph.first_before[turn.activity + 1]
    _, was_spent, was_strain, was_togo, was_code, _, _ = front
    for old in range(filled):
        begin[old], spent[old], strain[old] = 0, was_spent[old], was_strain[old]
        togo[old], code[old] = was_togo[old], was_code[old]
    for row in range(first, last):
        end, lag = front.end[search.row_of[graph.before[row]]], delay[graph.before_arc[row]]
        for old in range(filled):
            begin[old] = max(begin[old], end[old] + lag)
    for row in range(first, last):
        who, arc = graph.before[row], graph.before_arc[row]
        at, toll, lag, price = search.row_of[who], tolls[arc], delay[arc], prices[who]
        end, wish, closes = front.end[at], search.guide.end[who], open_for[who] == 0
        for old in range(filled):
            spent[old] += toll * (begin[old] - end[old] - lag)
            if closes:
                strain[old] -= price * abs(end[old] - wish)
                code[old] ^= time_code(at, end[old])
    if turn.lane >= 0:
        _enter(search, turn, front, filled, scratch)


@inner
def _enter(search: Search, turn: Turn, front: Front, filled: int, scratch: Workspace) -> None:
    """Return where the activity's lane is in every plan, and what a change would cost."""
    begin, _, _, togo, code, state, since, level, changed, fee = scratch.eve
    ahead = search.outlook.ahead[turn.lane, search.levels.at[turn.activity]]
    was, held = front.state[turn.lane], front.since[turn.lane]
    for old in range(filled):
        togo[old] -= ahead[was[old]]
        code[old] ^= level_code(turn.lane, was[old])
        state[old], since[old], level[old] = was[old], held[old], was[old] % turn.levels
        changed[old] = was[old] - level[old] - turn.counted
        fee[old] = turn.toll * (HASTE if begin[old] - held[old] < turn.dwell else 1.0)
        if changed[old] < 0:
            changed[old] += turn.counted
            fee[old] += turn.extra


@inner
def _offer(search: Search, turn: Turn, scratch: Workspace, filled: int) -> int:
    """Offer every plan the places around the relaxed one, and its lane's level; return how many.

    Where all of those end too late, there is one that does not.
    """
    length, place, begin, level = (
        search.choices.length,
        scratch.steps.place,
        scratch.eve.begin,
        scratch.eve.level,
    )
    low, high, size, soonest, latest = turn.low, turn.high, 0, begin[0], begin[0]
    for old in range(filled):
        soonest, latest = min(soonest, begin[old]), max(latest, begin[old])
    while high > low and soonest + length[high] > turn.due:
        high -= 1
    for there in range(low, high + 1):
        for old in range(filled):
            place[size + old] = there
        size += filled
    if turn.lane >= 0:
        own = search.levels.place[search.levels.table[turn.activity]]
        for old in range(filled):
            there = own[level[old]]
            place[size + old] = -1 if low <= there <= turn.high else there
        size += filled
    if latest + length[low] > turn.due:
        _offer_less(length, turn, begin, place[size : size + filled])
        size += filled
    return size


@inner
def _offer_less(length: Ints, turn: Turn, begin: Ints, place: Indices) -> None:
    """Offer those plans for which all else ends too late the slowest place that does not."""
    for old in range(len(place)):
        there = turn.low
        while there > turn.fastest and begin[old] + length[there] > turn.due:
            there -= 1
        place[old] = there if there < turn.low else -1


@inner
def _weigh(search: Search, turn: Turn, scratch: Workspace, filled: int, size: int) -> None:
    """Return what every step is worth; nothing where a step is not possible, or ends too late."""
    begin, spent, strain, togo, _, state, _, here, changed, fee = scratch.eve
    place, worth, _ = scratch.steps
    length, cost, level_of = search.choices.length, search.choices.cost, search.levels.level
    lane, price, wish, due, leaning = turn.lane, turn.price, turn.wish, turn.due, search.leaning
    onward = search.outlook.ahead[lane, search.levels.at[turn.activity] + 1]
    for at in range(0, size, filled):
        for old in range(filled):
            there = place[at + old]
            ended = begin[old] + length[there]
            paid, after = spent[old] + cost[there] + price * length[there], togo[old]
            if lane >= 0 and level_of[there] != here[old]:
                paid, after = paid + fee[old], after + onward[changed[old] + level_of[there]]
            elif lane >= 0:
                after += onward[state[old]]
            total = paid + after + leaning * (strain[old] + price * abs(ended - wish))
            worth[at + old] = total if there >= 0 and ended <= due else np.inf


@inner
def _sift(search: Search, turn: Turn, scratch: Workspace, filled: int, size: int, width: int) -> int:
    """Seat the best steps, as many as go on and a few more; return how many.

    The bar is guessed from one step in so many; where too few with different codes are within, it is higher.
    """
    worth, copied = scratch.steps.worth, scratch.steps.scratch
    drawn = 0
    for at in range(0, size, SAMPLE):
        copied[drawn] = worth[at]
        drawn += 1
    rank = (width + (width >> 1)) // SAMPLE + 1
    while True:
        bar, within = min(nth(copied, drawn, rank), FAR) if rank < drawn else FAR, 0
        for at in range(size):
            within += worth[at] <= bar
        if within >= width or bar == FAR:
            taken = _seat(search, turn, scratch, filled, size, bar, within)
            if taken >= width or bar == FAR:
                return taken
        rank *= 2


@inner
def _seat(
    search: Search, turn: Turn, scratch: Workspace, filled: int, size: int, bar: float, within: int
) -> int:
    """Seat the steps that are worth the bar; of two with the same ends and states the cheaper."""
    begin, spent, _, togo, mixed, state, since, here, changed, fee = scratch.eve
    place, worth, _ = scratch.steps
    to_old, to_place, to_end, to_spent, to_togo, to_worth, to_state, to_since, to_code, seat = scratch.seats
    length, cost, level_of = search.choices.length, search.choices.cost, search.levels.level
    own, lane, price = turn.row, turn.lane, turn.price
    onward = search.outlook.ahead[lane, search.levels.at[turn.activity] + 1]
    room, taken = _cleared(seat, within), 0
    for at in range(0, size, filled):
        for old in range(filled):
            if worth[at + old] > bar:
                continue
            there = place[at + old]
            ended = begin[old] + length[there]
            paid, after = spent[old] + cost[there] + price * length[there], togo[old]
            now, held, code = state[old], since[old], mixed[old] ^ time_code(own, ended)
            if lane >= 0:
                if level_of[there] != here[old]:
                    paid, now, held = paid + fee[old], changed[old] + level_of[there], begin[old]
                after += onward[now]
                code ^= level_code(lane, now)
            row = _row_of(seat, room, to_code, code, taken)
            if row == taken:
                taken += 1
            elif paid + after >= to_spent[row] + to_togo[row]:
                continue
            to_old[row], to_place[row], to_end[row], to_code[row] = old, there, ended, code
            to_spent[row], to_togo[row], to_worth[row] = paid, after, worth[at + old]
            to_state[row], to_since[row] = now, held
    return taken


@inner
def _cleared(seat: Indices, steps: int) -> int:
    """Clear seats for so many steps: a power of two, twice as many at least."""
    room = 4
    while room < 2 * steps:
        room *= 2
    for at in range(room):
        seat[at] = -1
    return room


@inner
def _row_of(seat: Indices, room: int, codes: Codes, code: np.uint64, free: int) -> int:
    """The row of a code; where none has it, the free one, which takes its seat."""
    at = np.int64(code & np.uint64(room - 1))
    while seat[at] >= 0 and codes[seat[at]] != code:
        at = (at + 1) & (room - 1)
    if seat[at] < 0:
        seat[at] = free
    return int(seat[at])


@inner
def _keep(
    turn: Turn, scratch: Workspace, taken: int, front: Front, new: Front, trail: Origins, at: int
) -> int:
    """Copy the best of the seated steps into the new front; return how many."""
    seats, chosen, copied, strain = (
        scratch.seats,
        scratch.steps.place,
        scratch.steps.scratch,
        scratch.eve.strain,
    )
    old_of, place_of, end_of, spent, togo, worth, state, since, code, _ = seats
    new_spent, new_strain, new_togo, new_code = new.spent, new.strain, new.togo, new.code
    origin, place = trail.origin[at], trail.place[at]
    price, wish, width, filled, bar = turn.price, turn.wish, len(new_spent), 0, np.inf
    if taken > width:
        for row in range(taken):
            copied[row] = worth[row]
        bar = nth(copied, taken, width - 1)
    for row in range(taken):
        if worth[row] <= bar and filled < width:
            chosen[filled] = row
            filled += 1
    for to in range(filled):
        row = chosen[to]
        origin[to], place[to] = old_of[row], place_of[row]
        new_spent[to], new_togo[to], new_code[to] = spent[row], togo[row], code[row]
        new_strain[to] = strain[old_of[row]] + price * abs(end_of[row] - wish)
    _copy(front.end, new.end, origin, filled)
    _copy(front.state, new.state, origin, filled)
    _write(end_of, chosen, new.end[turn.row], filled)
    if turn.lane >= 0:
        _write(state, chosen, new.state[turn.lane], filled)
    if turn.dwell > 0:  # else every level counts as taken long ago, and no change as hasty
        _copy(front.since, new.since, origin, filled)
        if turn.lane >= 0:
            _write(since, chosen, new.since[turn.lane], filled)
    return filled


@inner
def _copy(rows: Ints | Indices, to: Ints | Indices, origin: Indices, filled: int) -> None:
    for which in range(len(rows)):
        for at in range(filled):
            to[which, at] = rows[which, origin[at]]


@inner
def _write(values: Ints | Indices, chosen: Indices, to: Ints | Indices, filled: int) -> None:
    for at in range(filled):
        to[at] = values[chosen[at]]
