"""Plans with one option for each activity: beams at some of the wanted times, and splices between them.

A beam takes one activity after the other; the best partial plans go on side by side.
"""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.frontier import Frontier, activity_flow, bounds_at, precedence_flow
from perseus_ds.solver.network import Graph, Whole, latest_starts, pareto
from perseus_ds.solver.problem import Floats, Indices, Ints, Plans, Problem, blended, undominated

# Partial plans over the same activities side by side, and the best of what continues them.

Codes = NDArray[np.uint64]


class Front(NamedTuple):
    """Partial plans over the same activities, distinguished by when the open ones end.

    An activity is open until all its followers have begun; ``end`` has a row for each that can be open at
    once. ``spent``: by how much the plan is above the relaxed bound whatever follows, apart from a constant.
    ``strain``: how far its open ends are from the relaxed ones, weighed with the flow. ``code``: equal where
    all ends are.

    Shape: ``end`` [rows, plans]; the others [plans].
    """

    end: Ints
    spent: Floats
    strain: Floats
    code: Codes


def front_for(width: int, rows: int) -> Front:
    """Allocate; the first plan is the empty one."""
    columns = (np.zeros((rows, width), np.int64), *np.zeros((2, width)), np.zeros(width, np.uint64))
    return Front._make(columns)


class Eve(NamedTuple):
    """Every partial plan just before one more activity: when that begins, and the plan without it.

    ``code`` and ``strain`` are those of the ends that stay open.

    Shape: [plans].
    """

    begin: Ints
    spent: Floats
    strain: Floats
    code: Codes


class Steps(NamedTuple):
    """Continuations of the plans of a front, place after place, each with its worth.

    Shape: [steps].
    """

    place: Indices
    worth: Floats
    scratch: Floats


class Seats(NamedTuple):
    """Steps with ends that no other has; ``seat`` finds them by their code.

    Shape: ``seat`` [a power of two]; the others [steps].
    """

    old: Indices
    place: Indices
    end: Ints
    spent: Floats
    worth: Floats
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
    eve = Eve._make((np.empty(width, np.int64), *np.empty((2, width)), np.empty(width, np.uint64)))
    steps = Steps(np.empty(size, np.int32), *np.empty((2, size)))
    old, place, end = *np.empty((2, size), np.int32), np.empty(size, np.int64)
    seat = np.empty(2 ** (2 * size - 1).bit_length(), np.int32)
    seats = Seats._make((old, place, end, *np.empty((2, size)), np.empty(size, np.uint64), seat))
    return Workspace(eve, steps, seats)


@inner
def time_code(row: int, end: int) -> np.uint64:
    """Mix a row and a time into a code; codes of several rows are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(row) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


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
"""Number of options faster or slower than the relaxed duration are tried."""


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


# One activity after the other: what may continue every partial plan, and the best of it.
#
# The beam's one loop and its steps, in the order in which they run.


FAR = float(np.finfo(np.float64).max)
"""More than any step is worth: what is worth nothing is beyond every bar."""
SAMPLE = 5
"""Steps of which one is looked at to guess the bar; no number of places in a row."""


class Search(NamedTuple):
    """All that a beam reads.

    Shape: ``row_of`` [activities], where the ends of each stand in a front.
    """

    graph: Graph
    delay: Ints
    choices: Choices
    guide: Guide
    row_of: Indices
    leaning: float


class Turn(NamedTuple):
    """The activity whose turn it is: where its ends stand, and what is tried; ``fastest`` comes first."""

    activity: int
    row: int
    price: float
    wish: int
    due: int
    fastest: int
    low: int
    high: int


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
    guide = search.guide
    return Turn(
        activity,
        search.row_of[activity],
        guide.price[activity],
        guide.end[activity],
        guide.due[activity],
        search.choices.first[activity],
        guide.low[activity],
        guide.high[activity],
    )


@inner
def _begin(
    search: Search, turn: Turn, open_for: Indices, front: Front, filled: int, scratch: Workspace
) -> None:
    """Begin the activity in every plan as soon as it can; what waits for it pays its tolls."""
    graph, delay, tolls, prices = search.graph, search.delay, search.guide.toll, search.guide.price
    begin, spent, strain, code = scratch.eve
    first, last = graph.first_before[turn.activity], graph.first_before[turn.activity + 1]
    _, was_spent, was_strain, was_code = front
    for old in range(filled):
        begin[old], spent[old], strain[old], code[old] = 0, was_spent[old], was_strain[old], was_code[old]
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


@inner
def _offer(search: Search, turn: Turn, scratch: Workspace, filled: int) -> int:
    """Offer every plan the places around the relaxed one; return how many.

    Where all of those end too late, there is one that does not.
    """
    length, place, begin = search.choices.length, scratch.steps.place, scratch.eve.begin
    low, high, size, soonest, latest = turn.low, turn.high, 0, begin[0], begin[0]
    for old in range(filled):
        soonest, latest = min(soonest, begin[old]), max(latest, begin[old])
    while high > low and soonest + length[high] > turn.due:
        high -= 1
    for there in range(low, high + 1):
        for old in range(filled):
            place[size + old] = there
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
    begin, spent, strain, _ = scratch.eve
    place, worth, _ = scratch.steps
    length, cost, price, leaning = search.choices.length, search.choices.cost, turn.price, search.leaning
    for at in range(0, size, filled):
        for old in range(filled):
            there = place[at + old]
            ended = begin[old] + length[there]
            paid = spent[old] + cost[there] + price * length[there]
            total = paid + leaning * (strain[old] + price * abs(ended - turn.wish))
            worth[at + old] = total if there >= 0 and ended <= turn.due else np.inf


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
    """Seat the steps that are worth the bar; of two with the same ends the cheaper."""
    begin, spent, _, mixed = scratch.eve
    place, worth, _ = scratch.steps
    to_old, to_place, to_end, to_spent, to_worth, to_code, seat = scratch.seats
    length, cost, price = search.choices.length, search.choices.cost, turn.price
    room, taken = _cleared(seat, within), 0
    for at in range(0, size, filled):
        for old in range(filled):
            if worth[at + old] > bar:
                continue
            there = place[at + old]
            ended = begin[old] + length[there]
            paid, code = (
                spent[old] + cost[there] + price * length[there],
                mixed[old] ^ time_code(turn.row, ended),
            )
            row = _row_of(seat, room, to_code, code, taken)
            if row == taken:
                taken += 1
            elif paid >= to_spent[row]:
                continue
            to_old[row], to_place[row], to_end[row], to_code[row] = old, there, ended, code
            to_spent[row], to_worth[row] = paid, worth[at + old]
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
    old_of, place_of, end_of, spent, worth, code, _ = seats
    new_spent, new_strain, new_code = new.spent, new.strain, new.code
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
        new_spent[to], new_code[to] = spent[row], code[row]
        new_strain[to] = strain[old_of[row]] + price * abs(end_of[row] - wish)
    for which in range(len(front.end)):
        for to in range(filled):
            new.end[which, to] = front.end[which, origin[to]]
    for to in range(filled):
        new.end[turn.row, to] = end_of[chosen[to]]
    return filled


def beam(graph: Graph, delay: Ints, choices: Choices, guide: Guide, width: int, leaning: float) -> Indices:
    """Choose a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative. Each option
    adds what it costs at the flow's price above the best; every wait adds its toll. So partial plans over the
    same activities compare fairly, and ``width`` of them go on. ``leaning`` is the share of the strain that
    counts against one: ends out of step will cost tolls later.

    Shape: returns [activities].
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    row_of = np.empty(count, dtype=np.int32)
    rows = rows_of(graph, guide.order, row_of)
    fronts = front_for(width, rows), front_for(width, rows)
    trail = Origins(*np.empty((2, count, width), dtype=np.int32))
    search = Search(graph, delay, choices, guide, row_of, leaning)
    scratch = scratch_for(width, int((guide.high - guide.low).max() + 3))
    filled = run(search, *fronts, scratch, trail)
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] - guide.price[last] @ front.end[row_of[last], :filled]
    return _trace_back(guide.order, trail, int(np.argmin(paid)))


@compiled
def _trace_back(order: Indices, trail: Origins, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = trail.place[turn, last]
        last = trail.origin[turn, last]
    return chosen


# Plans between two others: the first part of an iteration from one of them, the rest from the other.


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A place for every activity, the longest path in ticks, and the cost.

    Shape: ``place`` [activities].
    """

    place: Indices
    ticks: int
    cost_j: float


def plan_of(whole: Whole, choices: Choices, place: Indices) -> Plan:
    """Add up a choice of places.

    Cost: linear.
    """
    return Plan(place, whole.longest(choices.length[place]), float(choices.cost[place].sum()))


def convex(plans: list[Plan]) -> list[Plan]:
    """Keep the plans that no mixture of two others beats, time ascending and cost falling.

    Source: Andrew 1979, the monotone chain.
    """
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.ticks, plan.cost_j)):
        if kept and plan.cost_j >= kept[-1].cost_j:
            continue
        while len(kept) > 1 and _above(kept[-2], kept[-1], plan):
            kept.pop()
        kept.append(plan)
    return kept


def _above(left: Plan, middle: Plan, right: Plan) -> bool:
    """Return whether the middle plan is on or above the line between the others."""
    fall = (left.cost_j - middle.cost_j) * (right.ticks - left.ticks)
    return fall <= (left.cost_j - right.cost_j) * (middle.ticks - left.ticks)


def spliced(whole: Whole, choices: Choices, order: Indices, corners: list[Plan], wanted: int) -> Plan:
    """Return the cheapest plan within the wanted time that changes over once between two neighbours.

    Where all stages keep step, a plan for a time in between runs some rounds as the faster plan and the rest
    as the slower. Mixing them within a round would make each wait for the other.

    Shape: ``order`` [activities], the order in which the iteration is cut in two.
    Cost: two dozen longest paths.
    """
    here = bisect.bisect_right([corner.ticks for corner in corners], wanted) - 1
    best = corners[here]
    if here + 1 < len(corners):
        faster, slower = corners[here], corners[here + 1]
        for pair in ((faster, slower), (slower, faster)):
            plan = _changing_over(whole, choices, order, pair, wanted)
            best = min(best, plan, key=lambda plan: plan.cost_j)
    return best


def _changing_over(
    whole: Whole, choices: Choices, order: Indices, pair: tuple[Plan, Plan], wanted: int
) -> Plan:
    """Bisect for the change-over that keeps the wanted time with as little of the faster plan as possible."""
    first, then = pair
    good = first if first.ticks <= wanted else then
    fits, fails = (len(order), 0) if good is first else (0, len(order))
    while abs(fits - fails) > 1:
        cut = (fits + fails) // 2
        place = then.place.copy()
        place[order[:cut]] = first.place[order[:cut]]
        plan = plan_of(whole, choices, place)
        if plan.ticks <= wanted:
            fits = cut
            good = min(good, plan, key=lambda plan: plan.cost_j)
        else:
            fails = cut
    return good


BEAMS, ACTIVITIES = 192, 50_000
"""Times at most that get a beam of their own, more where they make so many activities; others are spliced."""
WORK = 12_000_000
"""Partial plans that all beams together may continue, apart from what the narrowest take anyway."""
NARROWEST, WIDEST = 32, 2048
"""Partial plans that a beam keeps side by side."""
FEW = 32
"""Fewer times than that do not get wider beams."""
FIRST = 24
"""Factor by which the beam for the shortest time is wider: that plan costs no speed, so most users run it."""
LEANING = 0.1, 0.2
"""Shares of the strain that beams count, in turn: neighbours on the frontier that search differently."""


def discretise(problem: Problem, frontier: Frontier, times_s: Floats) -> Plans:
    """Choose an option for every activity and every wanted time; drop plans that another beats.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: a beam for each of some times, a splice for each time.
    """
    frontier.refuse_below(times_s)
    choices = choices_of(frontier.whole)
    wanted_s = np.sort(np.asarray(times_s))
    searched = _searched(frontier, choices, wanted_s)
    plans = searched + list(_between(frontier, choices, convex(searched), wanted_s))
    time_s = frontier.whole.tick.real(np.array([plan.ticks for plan in plans], dtype=np.int64))
    places = np.array([plan.place for plan in plans], dtype=np.int32).reshape(len(plans), len(problem))
    choice = choices.option[places]
    share = np.ones(choice.shape)
    cost_j = blended(problem, choice, choice, share)[1].sum(axis=1)
    best = undominated(time_s, cost_j)
    return Plans(time_s, cost_j, bounds_at(frontier, time_s), choice, choice, share).at(best)


def _searched(frontier: Frontier, choices: Choices, wanted_s: Floats) -> list[Plan]:
    """Search with a beam at some of the times, the first and the last among them."""
    whole = frontier.whole
    count = min(len(wanted_s), max(BEAMS, ACTIVITIES // len(whole.problem)))
    chosen = np.unique(np.linspace(0, len(wanted_s) - 1, count).round().astype(np.int64))
    width = max(WORK // (max(len(chosen), FEW) * len(whole.problem)), NARROWEST)

    def searched(number: int) -> Plan:
        time_s = float(wanted_s[chosen[number]])
        guide = guide_at(frontier, choices, time_s, frontier.whole.within(time_s))
        wide = min(width if number else FIRST * width, WIDEST)
        leaning = LEANING[(number + 1) % len(LEANING)]
        return plan_of(whole, choices, beam(whole.graph, whole.delay, choices, guide, wide, leaning))

    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as threads:
        return list(threads.map(searched, range(len(chosen))))


def _between(frontier: Frontier, choices: Choices, corners: list[Plan], wanted_s: Floats) -> Iterator[Plan]:
    """For every wanted time a splice."""
    whole = frontier.whole
    for time_s in wanted_s:
        wanted = whole.within(float(time_s))
        order = guide_at(frontier, choices, float(time_s), wanted).order
        yield spliced(whole, choices, order, corners, wanted)
