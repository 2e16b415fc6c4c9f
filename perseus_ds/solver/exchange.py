"""Better plans by exchange along chains: each chain is solved anew while all else keeps its time."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.choices import Choices
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.paths import Graph, earliest_starts, latest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints

WIDTH = 64
"""Partial plans of a chain that are kept side by side."""
SHORTEST = 8
"""Activities of the shortest chain that is worth its own times for all others."""
LAST, ANY = 1, 2
"""Covers that link the last free follower, or any, instead of the first."""
BAND = 3
"""How many options faster or slower than now are tried."""


@compiled
def improve(
    graph: Graph, delay: Ints, choices: Choices, place: Indices, wanted: int, passes: int, band: int
) -> Indices:
    """Solve chain after chain, in covers of all activities that change from pass to pass.

    The cost never rises and no path ever exceeds ``wanted``.

    Cost: passes times activities times WIDTH times the options in the band.
    """
    count = len(place)
    place = place.copy()
    link = np.empty(count, dtype=np.int32)
    headed = np.empty(count, dtype=np.bool_)
    chain = np.empty(count, dtype=np.int32)
    ends = np.empty((count, WIDTH), dtype=np.int64)
    costs = np.empty((count, WIDTH), dtype=np.float64)
    origin = np.empty((count, WIDTH), dtype=np.int32)
    chosen = np.empty((count, WIDTH), dtype=np.int32)
    for turn in range(passes):
        _cover(graph, turn, link, headed)
        for position in range(count):
            head = graph.order[position]
            if headed[head]:
                continue
            size = _walk(graph, link, head, chain)
            if size >= SHORTEST:
                start = _make_room(graph, delay, choices.length[place], chain[:size], wanted, turn & 1)
                _solve_chain(
                    graph,
                    delay,
                    choices,
                    place,
                    start,
                    wanted,
                    link,
                    chain[:size],
                    band,
                    ends,
                    costs,
                    origin,
                    chosen,
                )
    return place


@inner
def _make_room(graph: Graph, delay: Ints, duration: Ints, chain: Indices, wanted: int, early: int) -> Ints:
    """Start times that leave the chain room: what it waits for early, or what waits for it late.

    The others stand at the other end of their slack, so that times are feasible whatever the graph.
    """
    aside = np.zeros(len(duration), dtype=np.bool_)
    for activity in chain:
        if early:
            aside[graph.before[graph.first_before[activity] : graph.first_before[activity + 1]]] = True
        else:
            aside[graph.after[graph.first_after[activity] : graph.first_after[activity + 1]]] = True
    aside[chain] = False
    if early:
        return latest_starts(
            graph,
            delay,
            duration,
            wanted,
            aside,
            earliest_starts(graph, delay, duration, aside[:0], duration),
        )
    return earliest_starts(
        graph, delay, duration, aside, latest_starts(graph, delay, duration, wanted, aside[:0], duration)
    )


@inner
def _cover(graph: Graph, turn: int, link: Indices, headed: NDArray[np.bool_]) -> None:
    """Link every activity to at most one follower: the first free one, the last, or any."""
    link[:] = -1
    headed[:] = False
    dice = 2 * turn + 1
    for activity in graph.order:
        low, high = graph.first_after[activity], graph.first_after[activity + 1]
        dice = (dice * 1103515245 + 12345) & 0x7FFFFFFF
        backwards = turn // 2 % 3 == LAST or (turn // 2 % 3 == ANY and (dice >> 16) & 1)
        for offset in range(high - low):
            row = high - 1 - offset if backwards else low + offset
            if not headed[graph.after[row]]:
                link[activity] = row
                headed[graph.after[row]] = True
                break


@inner
def _walk(graph: Graph, link: Indices, head: int, chain: Indices) -> int:
    chain[0] = head
    size = 1
    while link[chain[size - 1]] >= 0:
        chain[size] = graph.after[link[chain[size - 1]]]
        size += 1
    return size


@inner
def _release(
    graph: Graph, delay: Ints, choices: Choices, place: Indices, start: Ints, activity: int, skipped: int
) -> int:
    """When the activities outside the chain let this one start."""
    ready = 0
    for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
        arc, before = graph.before_arc[row], graph.before[row]
        if arc != skipped:
            ready = max(ready, start[before] + choices.length[place[before]] + delay[arc])
    return ready


@inner
def _deadline(graph: Graph, delay: Ints, start: Ints, activity: int, skipped: int, wanted: int) -> int:
    """When the activities outside the chain need this one to have ended."""
    due = wanted
    for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
        if row != skipped:
            due = min(due, start[graph.after[row]] - delay[graph.after_arc[row]])
    return due


@inner
def _solve_chain(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    place: Indices,
    start: Ints,
    wanted: int,
    link: Indices,
    chain: Indices,
    band: int,
    ends: Ints,
    costs: Floats,
    origin: Indices,
    chosen: Indices,
) -> None:
    size = len(chain)
    release, due = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    lag = np.zeros(size, dtype=np.int64)
    arc = -1
    before_j = 0.0
    for at in range(size):
        activity = chain[at]
        before_j += choices.cost[place[activity]]
        release[at] = _release(graph, delay, choices, place, start, activity, arc)
        due[at] = _deadline(graph, delay, start, activity, link[activity], wanted)
        if at + 1 < size:
            arc = graph.after_arc[link[activity]]
            lag[at + 1] = delay[arc]
    for at in range(size - 2, -1, -1):
        follower = chain[at + 1]
        fastest = choices.length[max(choices.first[follower], place[follower] - band)]
        due[at] = min(due[at], due[at + 1] - fastest - lag[at + 1])
    filled = 1
    ends[size % 1, 0] = 0
    last_end, last_cost = np.zeros(WIDTH, dtype=np.int64), np.zeros(WIDTH)
    for at in range(size):
        filled = _extend(
            choices,
            place[chain[at]],
            chain[at],
            band,
            release[at],
            due[at],
            lag[at],
            last_end,
            last_cost,
            filled,
            ends[at],
            costs[at],
            origin[at],
            chosen[at],
        )
        if filled == 0:
            return
        last_end, last_cost = ends[at], costs[at]
    best = filled - 1
    if last_cost[best] > before_j:
        return
    for at in range(size - 1, -1, -1):
        activity = chain[at]
        place[activity] = chosen[at, best]
        start[activity] = ends[at, best] - choices.length[place[activity]]
        best = origin[at, best]


@inner
def _extend(
    choices: Choices,
    now: int,
    activity: int,
    band: int,
    release: int,
    due: int,
    lag: int,
    last_end: Ints,
    last_cost: Floats,
    filled: int,
    end: Ints,
    cost: Floats,
    origin: Indices,
    chosen: Indices,
) -> int:
    """Append one activity to every partial plan; keep the cheapest per stretch of time, undominated only."""
    low, high = max(choices.first[activity], now - band), min(choices.last[activity], now + band)
    soonest = max(release, last_end[0] + lag) + choices.length[low]
    span = due - soonest
    if span < 0:
        return 0
    share = span // WIDTH + 1
    for bucket in range(WIDTH):
        cost[bucket] = np.inf
    for old in range(filled):
        begin = max(release, last_end[old] + lag)
        for option in range(low, high + 1):
            finish = begin + choices.length[option]
            if finish > due:
                break
            bucket = (finish - soonest) // share
            total = last_cost[old] + choices.cost[option]
            if total < cost[bucket] or (total == cost[bucket] and finish < end[bucket]):
                end[bucket], cost[bucket], origin[bucket], chosen[bucket] = finish, total, old, option
    kept, least = 0, np.inf
    for bucket in range(WIDTH):
        if cost[bucket] < least:
            least = cost[bucket]
            end[kept], cost[kept], origin[kept], chosen[kept] = (
                end[bucket],
                least,
                origin[bucket],
                chosen[bucket],
            )
            kept += 1
    return kept
