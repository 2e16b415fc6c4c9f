"""Real options chain after chain: fixed chains bound the next one, the flow prices what is still open."""
# ruff: noqa: PLR0917, C901, PLR0912 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.choices import Choices
from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.paths import Graph, earliest_starts, latest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints

WIDTH = 96
"""Partial plans of a chain that are kept side by side."""
BAND = 4
"""How many options faster or slower than the relaxed duration are tried."""


AT_DUE = 2
"""The last of three ways to begin: at once, when the relaxed optimum does, or just in time."""


class Relaxed(NamedTuple):
    """The relaxed optimum that a dive starts from.

    Units: ticks; ``worth`` of a precedence in cost per tick by which its end is late.
    Shape: ``start``, ``end`` [activities]; ``worth`` [precedences].
    """

    start: Ints
    end: Ints
    worth: Floats


class Board(NamedTuple):
    """Partial plans of one chain, by activity and stretch of time."""

    end: Ints
    value: Floats
    origin: Indices
    place: Indices


@compiled
def dive(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    relaxed: Relaxed,
    chains: Indices,
    first: Indices,
    wanted: int,
) -> Indices:
    """Fix the chains in the order given; return a place per activity, below zero first if it got stuck.

    A chain sees activities of fixed chains as hard bounds. Those of open chains it must leave room at
    their fastest, and beyond that pays the relaxed problem's price for being late, or earns it for being
    early: so a chain may trade time with open ones as the relaxed optimum would.

    Cost: activities times WIDTH times options in the band, plus a pass over the graph per chain.
    """
    count = len(choices.first)
    length = choices.length[choices.first]
    place = choices.first.copy()
    fixed = np.zeros(count, dtype=np.bool_)
    start = np.zeros(count, dtype=np.int64)
    board = Board(
        np.empty((count, WIDTH), dtype=np.int64),
        np.empty((count, WIDTH), dtype=np.float64),
        np.empty((count, WIDTH), dtype=np.int32),
        np.empty((count, WIDTH), dtype=np.int32),
    )
    for number in range(len(first) - 1):
        chain = chains[first[number] : first[number + 1]]
        early = earliest_starts(graph, delay, length, fixed, start)
        late = latest_starts(graph, delay, length, wanted, fixed, start)
        if not _fix(graph, delay, choices, relaxed, chain, early, late, fixed, place, start, board):
            place[0] = -1
            return place
        for activity in chain:
            fixed[activity] = True
            length[activity] = choices.length[place[activity]]
    return place


@compiled
def _fix(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    relaxed: Relaxed,
    chain: Indices,
    early: Ints,
    late: Ints,
    fixed: NDArray[np.bool_],
    place: Indices,
    start: Ints,
    board: Board,
) -> bool:
    last_end, last_value, filled = np.zeros(1, dtype=np.int64), np.zeros(1), 1
    lag = 0
    for at in range(len(chain)):
        activity = chain[at]
        pays, lag = _prices(graph, delay, relaxed, chain, at, fixed)
        filled = _extend(
            choices,
            activity,
            early[activity],
            late[activity] + choices.length[choices.first[activity]],
            lag,
            relaxed.start[activity],
            relaxed.end[activity],
            pays[0],
            pays[1],
            last_end,
            last_value,
            filled,
            board.end[at],
            board.value[at],
            board.origin[at],
            board.place[at],
        )
        if filled == 0:
            return False
        last_end, last_value = board.end[at], board.value[at]
    best = int(np.argmin(last_value[:filled]))
    for at in range(len(chain) - 1, -1, -1):
        activity = chain[at]
        place[activity] = board.place[at, best]
        start[activity] = board.end[at, best] - choices.length[place[activity]]
        best = board.origin[at, best]
    return True


@compiled
def _prices(
    graph: Graph, delay: Ints, relaxed: Relaxed, chain: Indices, at: int, fixed: NDArray[np.bool_]
) -> tuple[tuple[float, float], int]:
    """What a late start earns and a late end costs in open chains; and the delay from the chain's last."""
    activity = chain[at]
    earns, pays, lag = 0.0, 0.0, 0
    for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
        if at > 0 and graph.before[row] == chain[at - 1]:
            lag = delay[graph.before_arc[row]]
        elif not fixed[graph.before[row]]:
            earns += relaxed.worth[graph.before_arc[row]]
    for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
        if (at + 1 == len(chain) or graph.after[row] != chain[at + 1]) and not fixed[graph.after[row]]:
            pays += relaxed.worth[graph.after_arc[row]]
    return (earns, pays), lag


@compiled
def _extend(
    choices: Choices,
    activity: int,
    release: int,
    due: int,
    lag: int,
    wish_start: int,
    wish_end: int,
    earns: float,
    pays: float,
    last_end: Ints,
    last_value: Floats,
    filled: int,
    end: Ints,
    value: Floats,
    origin: Indices,
    place: Indices,
) -> int:
    """Append one activity to every partial plan; keep the best per stretch of time."""
    now = choices.first[activity]
    wish = wish_end - wish_start
    while now < choices.last[activity] and choices.length[now + 1] <= wish:
        now += 1
    low, high = max(choices.first[activity], now - BAND), min(choices.last[activity], now + BAND)
    reach = choices.length[high] - choices.length[low] + 1
    soonest = max(release + choices.length[low], wish_end - reach)
    share = max(min(due, wish_end + reach) - soonest, 0) // (WIDTH - 1) + 1
    for bucket in range(WIDTH):
        value[bucket] = np.inf
    for old in range(filled):
        ready = max(release, last_end[old] + lag)
        for option in range(low, high + 1):
            for pause in range(AT_DUE + 1):
                begin = ready
                if pause == 1:
                    begin = max(ready, wish_start)
                elif pause == AT_DUE:
                    begin = max(ready, min(due, wish_end + reach) - choices.length[option])
                finish = begin + choices.length[option]
                if finish > due or (pause > 0 and begin == ready):
                    continue
                bucket = min(max(finish - soonest, 0) // share, WIDTH - 2)
                total = (
                    last_value[old]
                    + choices.cost[option]
                    + pays * (finish - wish_end)
                    - earns * (begin - wish_start)
                )
                if total < value[bucket]:
                    end[bucket], value[bucket], origin[bucket], place[bucket] = finish, total, old, option
    fastest, first_out = choices.first[activity], -1
    for old in range(filled):
        if first_out < 0 or last_end[old] < last_end[first_out]:
            first_out = old
    finish = max(release, last_end[first_out] + lag) + choices.length[fastest]
    if finish <= due:
        begin = finish - choices.length[fastest]
        total = (
            last_value[first_out]
            + choices.cost[fastest]
            + pays * (finish - wish_end)
            - earns * (begin - wish_start)
        )
        end[WIDTH - 1], value[WIDTH - 1], origin[WIDTH - 1], place[WIDTH - 1] = (
            finish,
            total,
            first_out,
            fastest,
        )
    kept = 0
    for bucket in range(WIDTH):
        if value[bucket] < np.inf:
            end[kept], value[kept], origin[kept], place[kept] = (
                end[bucket],
                value[bucket],
                origin[bucket],
                place[bucket],
            )
            kept += 1
    return kept
