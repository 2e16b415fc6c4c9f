"""Better plans by exchange along chains: each chain is solved anew while all else keeps its time."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.compiling.compiled import compiled, inner
from perseus_ds.solver.discrete.chain import Board, board_for, solve_chain
from perseus_ds.solver.paths import Graph, earliest_starts, latest_starts
from perseus_ds.solver.problem import Indices, Ints

Marks = NDArray[np.bool_]

SHORTEST = 8
"""Activities of the shortest chain that is worth its own times for all others."""
LAST, ANY = 1, 2
"""Covers that link the last free follower, or any, instead of the first."""
BAND = 3
"""How many options faster or slower than now are tried."""


class Cover(NamedTuple):
    """Chains that cover all activities: each one's link onward (a row of the graph), and scratch.

    Shape: [activities].
    """

    link: Indices
    headed: Marks
    chain: Indices
    aside: Marks
    duration: Ints


def improve(
    graph: Graph, delay: Ints, choices: Choices, place: Indices, wanted: int, passes: int, band: int
) -> Indices:
    """Solve chain after chain, in covers of all activities that change from pass to pass.

    The cost never rises and no path ever exceeds ``wanted``.

    Cost: passes times activities times WIDTH times the options in the band.
    """
    count, better = len(place), place.copy()
    link, chain = np.empty((2, count), dtype=np.int32)
    headed, aside = np.empty((2, count), dtype=np.bool_)
    cover = Cover(link, headed, chain, aside, np.empty(count, dtype=np.int64))
    _exchange(graph, delay, choices, better, wanted, passes, band, board_for(count), cover)
    return better


@compiled
def _exchange(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    place: Indices,
    wanted: int,
    passes: int,
    band: int,
    board: Board,
    cover: Cover,
) -> None:
    for turn in range(passes):
        _cover(graph, turn, cover.link, cover.headed)
        for head in graph.order:
            if cover.headed[head]:
                continue
            size = _walk(graph, cover.link, head, cover.chain)
            if size < SHORTEST:
                continue
            for activity in range(len(place)):
                cover.duration[activity] = choices.length[place[activity]]
            chain = cover.chain[:size]
            start = _make_room(graph, delay, cover.duration, chain, wanted, turn & 1, cover.aside)
            solve_chain(graph, delay, choices, place, start, wanted, cover.link, chain, band, board)


@inner
def _make_room(
    graph: Graph, delay: Ints, duration: Ints, chain: Indices, wanted: int, early: int, aside: Marks
) -> Ints:
    """Start times that leave the chain room: what it waits for early, or what waits for it late.

    The others stand at the other end of their slack, so that times are feasible whatever the graph.
    """
    for activity in range(len(duration)):
        aside[activity] = False
    for activity in chain:
        if early:
            for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
                aside[graph.before[row]] = True
        else:
            for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
                aside[graph.after[row]] = True
    for activity in chain:
        aside[activity] = False
    if early:
        first = earliest_starts(graph, delay, duration, aside[:0], duration)
        return latest_starts(graph, delay, duration, wanted, aside, first)
    last = latest_starts(graph, delay, duration, wanted, aside[:0], duration)
    return earliest_starts(graph, delay, duration, aside, last)


@inner
def _cover(graph: Graph, turn: int, link: Indices, headed: Marks) -> None:
    """Link every activity to at most one follower: the first free one, the last, or any."""
    for activity in range(len(link)):
        link[activity], headed[activity] = -1, False
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
