"""Plans with one option for each activity: a beam for every wanted time, along the relaxed optimum.

A beam takes one activity after the other. Partial plans over the same activities stand side by side; the best
of what continues them go on.
"""
# ruff: noqa: PLR0912, PLR0915, PLR0917, C901 - compiled code: arguments by position, loops written out

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from perseus_ds.schedule.dag import Graph
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.network import hull_of, latest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Plans, pareto_front
from perseus_ds.solver.sweep import pop, push

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
BAND = 3
"""Number of options faster or slower than the relaxed duration that are tried."""


class Choices(NamedTuple):
    """Undominated options of all tables in one long list, of each table the fastest first.

    Units: ticks; joules.
    Shape: ``first``, ``last`` [activities], both included; ``length``, ``cost``, ``option`` (position in its
    table) [places].
    """

    first: Indices
    last: Indices
    length: Ints
    cost: Floats
    option: Indices


class Guide(NamedTuple):
    """The relaxed optimum at one time, as a beam reads it.

    ``order``: activities by relaxed start; ``end``: their relaxed ends. ``due``: latest ends from which the
    rest can keep the wanted time at its fastest. ``price``: the flow, cost per tick of duration; ``toll``:
    cost per tick of waiting. ``low`` to ``high``: the places that are tried.

    Units: ticks; cost per tick.
    Shape: ``toll`` [precedences]; the others [activities].
    """

    order: Indices
    end: Ints
    due: Ints
    price: Floats
    toll: Floats
    low: Ints
    high: Ints


def discretise(frontier: Frontier, times_s: Floats) -> Plans:
    """Choose an option for every activity and every wanted time; drop plans that another beats.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: a beam for each of some times (activities times width times options in the band), a splice for each
    time.
    """
    frontier.refuse_below(times_s)
    choices, wanted_s = _choices(frontier), np.unique(np.asarray(times_s))
    searched = _search(frontier, choices, wanted_s)
    time_s, cost_j = _figures(frontier, choices, searched)
    corners = searched[hull_of(OptionTable(time_s, cost_j)).option]
    places = np.array([*searched, *_splice(frontier, choices, corners, wanted_s)])
    time_s, cost_j = _figures(frontier, choices, places)
    best = pareto_front(time_s, cost_j)
    choice, time_s, cost_j = choices.option[places[best]], time_s[best], cost_j[best]
    return Plans(time_s, cost_j, frontier.bounds_at(time_s), choice, choice, np.ones(choice.shape))


def _search(frontier: Frontier, choices: Choices, wanted_s: Floats) -> Indices:
    """Search with a beam at some of the times, the first and the last among them.

    Shape: returns [plans, activities].
    """
    whole, activities = frontier.whole, len(frontier.whole.problem)
    count = min(len(wanted_s), max(BEAMS, ACTIVITIES // activities))
    chosen = np.unique(np.linspace(0, len(wanted_s) - 1, count).round().astype(np.int64))
    width = max(WORK // (max(len(chosen), FEW) * activities), NARROWEST)

    def search(number: int) -> Indices:
        guide = _guide(frontier, choices, float(wanted_s[chosen[number]]))
        wide = min(width if number else FIRST * width, WIDEST)
        leaning = LEANING[(number + 1) % len(LEANING)]
        return _beam(whole.graph, whole.delay, choices, guide, wide, leaning)

    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as threads:
        return np.array(list(threads.map(search, range(len(chosen)))))


def _figures(frontier: Frontier, choices: Choices, places: Indices) -> tuple[Floats, Floats]:
    """Return the longest path of every plan in seconds, and its cost."""
    ticks = [frontier.whole.longest(choices.length[place]) for place in places]
    return frontier.whole.tick.real(np.array(ticks, np.int64)), choices.cost[places].sum(axis=1)


def _splice(frontier: Frontier, choices: Choices, corners: Indices, wanted_s: Floats) -> Iterator[Indices]:
    """Yield plans for times between two corners, that change over once from one of them to the other.

    Where all stages keep step, such a plan runs some rounds as the faster one and the rest as the slower.
    Mixing them within a round would make each wait for the other.
    """
    whole = frontier.whole
    ticks = [whole.longest(choices.length[place]) for place in corners]
    for time_s in wanted_s.tolist():
        wanted = whole.within(time_s)
        after = bisect.bisect_right(ticks, wanted)
        if not 0 < after < len(ticks):
            continue
        turn = np.argsort(_guide(frontier, choices, time_s).order)
        for first, then in ((after - 1, after), (after, after - 1)):
            fits, fails = (len(turn), 0) if first < then else (0, len(turn))
            found = corners[after - 1]
            while abs(fits - fails) > 1:  # as little of the faster plan as possible
                cut = (fits + fails) // 2
                place = np.where(turn < cut, corners[first], corners[then])
                if whole.longest(choices.length[place]) <= wanted:
                    fits, found = cut, place
                else:
                    fails = cut
            yield found


def _choices(frontier: Frontier) -> Choices:
    problem, tick = frontier.whole.problem, frontier.whole.tick
    options = [pareto_front(table.duration_s, table.cost_j) for table in problem.tables]
    end = np.cumsum([len(kept) for kept in options]).astype(np.int32)
    pairs = list(zip(problem.tables, options, strict=True))
    return Choices(
        first=np.concatenate(([0], end[:-1])).astype(np.int32)[problem.table_of],
        last=(end - 1)[problem.table_of],
        length=tick.whole(np.concatenate([table.duration_s[kept] for table, kept in pairs])),
        cost=np.concatenate([table.cost_j[kept] for table, kept in pairs]),
        option=np.concatenate(options),
    )


def _guide(frontier: Frontier, choices: Choices, time_s: float) -> Guide:
    """Interpolate event times between snapshots; take prices from the faster one.

    Cost: linear, after sorting.
    """
    whole, network, count = frontier.whole, frontier.network, len(frontier.whole.problem)
    left, right, share = frontier.bracket(time_s)
    low, high = (frontier.event[at] - frontier.event[at][0] for at in (left, right))
    event = low + ((high - low) * share).astype(np.int64)
    start = event[network.to[network.back[:count]]]
    lasts = np.clip(event[network.to[network.ahead[:count]]] - start, whole.fastest, whole.slowest)
    place = np.empty(count, np.int64)
    for own in filter(len, whole.problem.members()):
        first, last = choices.first[own[0]], choices.last[own[0]]
        place[own] = first + np.searchsorted(choices.length[first : last + 1], lasts[own], side="right") - 1
    fastest = choices.length[choices.first]
    rank = np.empty(count, np.int64)
    rank[whole.graph.order] = np.arange(count)  # of those that start together, what goes before comes first
    per_tick = float(whole.tick.real(1))
    return Guide(
        order=np.lexsort((rank, start)).astype(np.int32),
        end=start + lasts,
        due=latest_starts(whole.graph, whole.delay, fastest, whole.within(time_s)) + fastest,
        price=frontier.activity_flow(left) * per_tick,
        toll=frontier.precedence_flow(left) * per_tick,
        low=np.maximum(choices.first, place - BAND),
        high=np.minimum(choices.last, place + 1 + BAND),
    )


@inner
def _code(row: int, end: int) -> np.uint64:
    """Mix a row and a time into a code; codes of several rows are joined by exclusive or."""
    mixed = (np.uint64(end) + np.uint64(row) * np.uint64(0xBF58476D1CE4E5B9)) * np.uint64(0x9E3779B97F4A7C15)
    return np.uint64((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB))


@compiled
def _beam(graph: Graph, delay: Ints, choices: Choices, guide: Guide, width: int, leaning: float) -> Indices:
    """Return a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative. Each option
    adds what it costs at the flow's price above the best; every wait adds its toll. So what partial plans
    over the same activities have ``spent`` compares fairly, and ``width`` of them go on. ``strain`` is how
    far open ends are from the relaxed ones, weighed with the flow: ``leaning`` is the share of it that
    counts, as ends out of step will cost tolls later. An activity is open until all its followers have begun,
    and has a row of ``ends`` for so long. Of plans whose open ends are all alike (they have one ``code``) the
    cheapest stays.
    """
    count, open_for = len(guide.order), graph.first_after[1:] - graph.first_after[:-1]
    length, cost = choices.length, choices.cost
    rows, still = 0, 0
    for activity in guide.order:  # as many rows as activities can be open at once
        still += 1
        for at in range(graph.first_before[activity], graph.first_before[activity + 1]):
            open_for[graph.before[at]] -= 1
            still -= open_for[graph.before[at]] == 0
        rows = max(rows, still)
    open_for = graph.first_after[1:] - graph.first_after[:-1]
    ends, new_ends = np.zeros((rows, width), np.int64), np.zeros((rows, width), np.int64)
    spent, new_spent = np.zeros(width), np.zeros(width)
    strain, new_strain = np.zeros(width), np.zeros(width)
    code, new_code = np.zeros(width, np.uint64), np.zeros(width, np.uint64)
    begin, ended, row_of = np.zeros(width, np.int64), np.zeros(width, np.int64), np.zeros(count, np.int64)
    free, freed = np.arange(rows), rows
    most = width * ((guide.high - guide.low).max() + 2)
    worth, step = np.empty(most), np.empty(most, np.int32)
    origin, place = np.empty((count, width), np.int32), np.empty((count, width), np.int32)
    room = 4
    while room < 2 * width:
        room *= 2
    seat = np.empty(room, np.int32)
    filled = 1
    for turn in range(count):
        activity = guide.order[turn]
        price, wish, due = guide.price[activity], guide.end[activity], guide.due[activity]
        fastest, low, high = choices.first[activity], guide.low[activity], guide.high[activity]
        span = choices.last[activity] + 1 - fastest

        for old in range(filled):
            begin[old] = 0
        for at in range(graph.first_before[activity], graph.first_before[activity + 1]):
            row, lag = row_of[graph.before[at]], delay[graph.before_arc[at]]
            for old in range(filled):
                begin[old] = max(begin[old], ends[row, old] + lag)
        for at in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before, arc = graph.before[at], graph.before_arc[at]
            row, lag, toll = row_of[before], delay[arc], guide.toll[arc]
            for old in range(filled):
                spent[old] += toll * (begin[old] - ends[row, old] - lag)
            open_for[before] -= 1
            if open_for[before] == 0:
                free[freed] = row
                freed += 1
                for old in range(filled):
                    strain[old] -= guide.price[before] * abs(ends[row, old] - guide.end[before])
                    code[old] ^= _code(row, ends[row, old])
        freed -= 1
        row = free[freed]
        row_of[activity] = row

        size = 0
        for old in range(filled):
            there = low
            while there > fastest and begin[old] + length[there] > due:
                there -= 1
            while there <= high and begin[old] + length[there] <= due:
                off = price * abs(begin[old] + length[there] - wish)
                paid = spent[old] + cost[there] + price * length[there]
                push(worth, step, size, paid + leaning * (strain[old] + off), old * span + there - fastest)
                size += 1
                there += 1
        for at in range(room):
            seat[at] = -1
        filled = 0
        while size > 0 and filled < width:
            old, there = step[0] // span, fastest + step[0] % span
            pop(worth, step, size)
            size -= 1
            end = begin[old] + length[there]
            mixed = code[old] ^ _code(row, end)
            key = np.int64(mixed & np.uint64(room - 1))
            while seat[key] >= 0 and new_code[seat[key]] != mixed:
                key = (key + 1) & (room - 1)
            if seat[key] >= 0:
                continue
            seat[key] = filled
            origin[turn, filled], place[turn, filled] = old, there
            new_spent[filled] = spent[old] + cost[there] + price * length[there]
            new_strain[filled] = strain[old] + price * abs(end - wish)
            new_code[filled], ended[filled] = mixed, end
            filled += 1
        for which in range(rows):
            for to in range(filled):
                new_ends[which, to] = ends[which, origin[turn, to]]
        for to in range(filled):
            new_ends[row, to] = ended[to]
        ends, new_ends, spent, new_spent = new_ends, ends, new_spent, spent
        strain, new_strain, code, new_code = new_strain, strain, new_code, code

    least, best = np.inf, 0
    for one in range(filled):
        paid = spent[one]
        for activity in range(count):
            if graph.first_after[activity] == graph.first_after[activity + 1]:
                paid -= guide.price[activity] * ends[row_of[activity], one]
        if paid < least:
            least, best = paid, one
    chosen = np.empty(count, np.int32)
    for turn in range(count - 1, -1, -1):
        chosen[guide.order[turn]] = place[turn, best]
        best = origin[turn, best]
    return chosen
