"""A beam: the best partial plans go on side by side, one activity after the other."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.frontier import Frontier, activity_flow, precedence_flow
from perseus_ds.solver.network import Graph, Whole, latest_starts, pareto
from perseus_ds.solver.problem import Floats, Indices, Ints

# Partial plans over the same activities side by side, and the best of what continues them.

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
    """Continuations of the plans of a front, place after place, each with its worth.

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
    """Scratch arrays of a beam."""

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


# The real options of every activity, and the slowest that fits a window.


class Choices(NamedTuple):
    """Each activity's undominated options in one long list, fastest first, cost strictly falling.

    Shape: ``first``, ``last`` [activities] (both included); ``length`` (ticks), ``cost``, ``option``
    (position in its table) [places].
    """

    first: Indices
    last: Indices
    length: Ints
    cost: Floats
    option: Indices


def choices_of(whole: Whole) -> Choices:
    """Pack the Pareto options of all tables."""
    tables = whole.problem.tables
    options = [pareto(table) for table in tables]
    end = np.cumsum([len(kept) for kept in options])
    begin = np.concatenate(([0], end[:-1]))
    duration_s = np.concatenate([t.duration_s[kept] for t, kept in zip(tables, options, strict=True)])
    cost = np.concatenate([t.cost_j[kept] for t, kept in zip(tables, options, strict=True)])
    table_of = whole.problem.table_of
    return Choices(
        first=begin[table_of].astype(np.int32),
        last=(end - 1)[table_of].astype(np.int32),
        length=whole.tick.whole(duration_s),
        cost=cost,
        option=np.concatenate(options).astype(np.int32),
    )


@inner
def slowest_within(choices: Choices, activity: int, window: int) -> int:
    """Return the place of the slowest option that fits the window, or of the fastest of all."""
    low, high = choices.first[activity], choices.last[activity]
    while low < high:
        middle = (low + high + 1) >> 1
        if choices.length[middle] <= window:
            low = middle
        else:
            high = middle - 1
    return int(low)


@compiled
def places_within(choices: Choices, window: Ints) -> Indices:
    """Return for every activity the place of the slowest option that fits its window."""
    place = np.empty(len(window), dtype=np.int32)
    for activity in range(len(window)):
        place[activity] = slowest_within(choices, activity, window[activity])
    return place


# The relaxed optimum at one time, made into what a beam follows.

BAND = 3
"""How many options faster or slower than the relaxed duration are tried."""


class Guide(NamedTuple):
    """The relaxed optimum at one time, as a beam reads it.

    ``order``: activities by relaxed start; ``start``, ``end``: relaxed starts and ends. ``due``: latest ends
    from which the rest can keep the wanted time at its fastest. ``price``: the flow, cost per tick of
    duration; ``toll``: cost per tick of waiting. ``low`` to ``high``: the places that are tried.

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


def guide_at(frontier: Frontier, choices: Choices, time_s: float, wanted: int) -> Guide:
    """Interpolate event times between snapshots; take prices from the faster one.

    ``wanted`` is the time in ticks that no plan may exceed.

    Cost: linear, after sorting.
    """
    whole = frontier.whole
    start, end = _events(frontier, time_s)
    place = places_within(choices, end - start)
    fastest = choices.length[choices.first]
    due = latest_starts(whole.graph, whole.delay, fastest, wanted) + fastest
    left = frontier.bracket(time_s)[0]
    per_tick = float(whole.tick.real(np.array(1)))
    return Guide(
        order=_by_start(whole.graph.order, start),
        start=start,
        end=end,
        due=due,
        price=activity_flow(frontier, left) * per_tick,
        toll=precedence_flow(frontier, left) * per_tick,
        low=np.maximum(choices.first, place - BAND),
        high=np.minimum(choices.last, place + 1 + BAND),
    )


def _events(frontier: Frontier, time_s: float) -> tuple[Ints, Ints]:
    whole, network, count = frontier.whole, frontier.network, len(frontier.whole.problem)
    left, right, share = frontier.bracket(time_s)
    low, high = (frontier.event[at] - frontier.event[at][0] for at in (left, right))
    event = low + ((high - low) * share).astype(np.int64)
    start = event[network.to[network.back[:count]]]
    window = event[network.to[network.ahead[:count]]] - start
    return start, start + np.clip(window, whole.fastest, whole.slowest)


def _by_start(order: Indices, start: Ints) -> Indices:
    """Sort activities by start; of those that start together, what goes before comes first."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.lexsort((rank, start)).astype(np.int32)


# Which activities take turns at one lane, at which level each place runs them, and what is to pay.


class Levels(NamedTuple):
    """Lanes as compiled code reads them, with the places of one ``Choices``.

    ``lane`` and ``at`` state where an activity runs (-1: nowhere) and as which of its lane. ``level`` is that
    of a place, ``place`` the place of a table's option at a level (-1: it has none there). ``table`` is an
    activity's table. No level is held for less than ``dwell`` ticks.

    Shape: ``lane``, ``at``, ``table`` [activities]; ``level`` [places]; ``place`` [tables, levels].
    """

    lane: Indices
    at: Indices
    table: Indices
    level: Indices
    place: Indices
    dwell: int

    @classmethod
    def none(cls, activities: int, places: int) -> Self:
        """Every activity by itself."""
        nowhere, zero = np.full(activities, -1, np.int32), np.zeros(activities, np.int32)
        return cls(nowhere, zero, zero, np.zeros(places, np.int32), np.zeros((1, 1), np.int32), 0)


class LaneOutlook(NamedTuple):
    """Cost that every lane has still to pay, by place and state, and the cost of a change.

    A state is a level and how many changes are left: ``left * levels + level``; where changes are not
    counted none is ever left. Every lane begins in the state ``home``.

    Shape: ``ahead`` [lanes, longest order + 1, states]; ``toll``, ``home`` [lanes]. Of no lanes the first
    two have one that nobody reads.
    """

    ahead: Floats
    toll: Floats
    home: Indices
    extra: float

    @classmethod
    def none(cls) -> Self:
        """No lanes."""
        return cls(np.zeros((1, 2, 1)), np.zeros(1), np.zeros(0, np.int32), 0.0)


# One activity after the other: what may continue every partial plan, and the best of it.
#
# The beam's one loop and its steps, in the order in which they run.

# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords


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
    """Parents: the plan that each plan of each turn continues, and at which place.

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


# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords


def beam(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    guide: Guide,
    width: int,
    leaning: float,
    levels: Levels | None = None,
    outlook: LaneOutlook | None = None,
) -> Indices:
    """Choose a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative. Each option
    adds what it costs at the flow's price above the best; every wait adds its toll. So partial plans over the
    same activities compare fairly, and ``width`` of them go on. ``leaning`` is the share of the strain that
    counts against one: ends out of step will cost tolls later. Where changes of level cost, the sum has what
    every lane still has to pay from its state on. So a plan that has paid for a change and one that has not
    yet compare fairly.

    Shape: returns [activities].
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    levels = Levels.none(count, len(choices.length)) if levels is None else levels
    outlook = LaneOutlook.none() if outlook is None else outlook
    row_of = np.empty(count, dtype=np.int32)
    rows = rows_of(graph, guide.order, row_of)
    fronts = front_for(width, rows, outlook.home), front_for(width, rows, outlook.home)
    fronts[0].togo[0] = sum(outlook.ahead[lane, 0, state] for lane, state in enumerate(outlook.home))
    trail = Origins(*np.empty((2, count, width), dtype=np.int32))
    search = Search(graph, delay, choices, levels, guide, outlook, row_of, leaning)
    scratch = scratch_for(width, int((guide.high - guide.low).max() + 3))
    filled = run(search, *fronts, scratch, trail)
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] + front.togo[:filled] - guide.price[last] @ front.end[row_of[last], :filled]
    return _trace_back(guide.order, trail, int(np.argmin(paid)))


@compiled
def _trace_back(order: Indices, trail: Origins, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = trail.place[turn, last]
        last = trail.origin[turn, last]
    return chosen
