"""One chain solved anew: the cheapest options between what is before it and what is after it."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.compiling.compiled import inner, number
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints

WIDTH = 64
"""Partial plans of a chain that are kept side by side."""


class Board(NamedTuple):
    """Partial plans of one chain, row after row, and the limits of its activities.

    Row ``at + 1`` holds the plans up to and with activity ``at``, time ascending and cost falling.

    Shape: ``end``, ``cost``, ``origin``, ``place`` [activities + 1, WIDTH]; ``release``, ``due``, ``lag``
    [activities].
    """

    end: Ints
    cost: Floats
    origin: Indices
    place: Indices
    release: Ints
    due: Ints
    lag: Ints


def board_for(count: int) -> Board:
    """Allocate for chains of up to ``count`` activities."""
    end, cost = np.empty((count + 1, WIDTH), dtype=np.int64), np.empty((count + 1, WIDTH))
    origin, place = np.empty((2, count + 1, WIDTH), dtype=np.int32)
    release, due, lag = np.empty((3, count), dtype=np.int64)
    return Board(end, cost, origin, place, release, due, lag)


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
def solve_chain(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    place: Indices,
    start: Ints,
    wanted: int,
    link: Indices,
    chain: Indices,
    band: int,
    board: Board,
) -> None:
    """Give the chain's activities the cheapest places between what is before and what is after it."""
    now_j = _limits(graph, delay, choices, place, start, wanted, link, chain, band, board)
    filled = number(1)
    board.end[0, 0], board.cost[0, 0] = 0, 0.0
    for at in range(len(chain)):
        filled = _extend(
            choices.first[chain[at]],
            choices.last[chain[at]],
            choices.length,
            choices.cost,
            place[chain[at]],
            band,
            board.release[at],
            board.due[at],
            board.lag[at],
            at,
            filled,
            board.end,
            board.cost,
            board.origin,
            board.place,
        )
        if filled == 0:
            return
    best = filled - 1
    if board.cost[len(chain), best] > now_j:
        return
    for at in range(len(chain) - 1, -1, -1):
        place[chain[at]] = board.place[at + 1, best]
        start[chain[at]] = board.end[at + 1, best] - choices.length[place[chain[at]]]
        best = board.origin[at + 1, best]


@inner
def _limits(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    place: Indices,
    start: Ints,
    wanted: int,
    link: Indices,
    chain: Indices,
    band: int,
    board: Board,
) -> float:
    """Write when each activity of the chain may start and must end; return what the chain costs now."""
    arc, now_j = number(-1), 0.0
    for at in range(len(chain)):
        activity = chain[at]
        now_j += choices.cost[place[activity]]
        board.lag[at] = delay[arc] if at > 0 else 0
        board.release[at] = _release(graph, delay, choices, place, start, activity, arc)
        board.due[at] = _deadline(graph, delay, start, activity, link[activity], wanted)
        arc = graph.after_arc[link[activity]] if at + 1 < len(chain) else -1
    for at in range(len(chain) - 2, -1, -1):
        follower = chain[at + 1]
        fastest = choices.length[max(choices.first[follower], place[follower] - band)]
        board.due[at] = min(board.due[at], board.due[at + 1] - fastest - board.lag[at + 1])
    return now_j


@inner
def _extend(
    first: int,
    last: int,
    length: Ints,
    costs: Floats,
    now: int,
    band: int,
    release: int,
    due: int,
    lag: int,
    at: int,
    filled: int,
    end: Ints,
    cost: Floats,
    origin: Indices,
    place: Indices,
) -> int:
    """Append one activity to every partial plan; keep the cheapest per stretch of time, undominated only."""
    low, high, to = max(first, now - band), min(last, now + band), at + 1
    soonest = max(release, end[at, 0] + lag) + length[low]
    span = due - soonest
    if span < 0:
        return 0
    share = span // WIDTH + 1
    for bucket in range(WIDTH):
        cost[to, bucket] = np.inf
    for old in range(filled):
        begin = max(release, end[at, old] + lag)
        for option in range(low, high + 1):
            finish = begin + length[option]
            if finish > due:
                break
            bucket = (finish - soonest) // share
            total = cost[at, old] + costs[option]
            if total < cost[to, bucket] or (total == cost[to, bucket] and finish < end[to, bucket]):
                end[to, bucket], cost[to, bucket] = finish, total
                origin[to, bucket], place[to, bucket] = old, option
    kept, least = 0, np.inf
    for bucket in range(WIDTH):
        if cost[to, bucket] < least:
            least = cost[to, bucket]
            end[to, kept], cost[to, kept] = end[to, bucket], least
            origin[to, kept], place[to, kept] = origin[to, bucket], place[to, bucket]
            kept += 1
    return kept
