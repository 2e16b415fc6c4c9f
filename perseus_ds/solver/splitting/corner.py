"""A corner of the optimal face: as few durations between two options as an optimal basis allows."""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import inlined, inner, number, tiered
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.parametric.network import SINK, SOURCE, Network
from perseus_ds.solver.problem import Indices, Ints

OPEN = 2**62
"""A window without an upper end: what carries no flow may wait."""
LATER, EARLIER, MEMBERS = 0, 1, 2
MOVING = -1
"""The name of the group that moves."""
TICKS = 2
"""Ticks within which a window counts as closed: events between two breakpoints are rounded."""


class ArcWindows(NamedTuple):
    """Arcs between events, the steps at every event, and how far apart an arc's ends may be without a loss.

    Units: ticks.
    Shape: ``first`` [events + 1]; ``arc`` [steps]; the others [arcs].
    """

    first: Indices
    arc: Indices
    ahead: Indices
    tail: Indices
    head: Indices
    least: Ints
    most: Ints


class Groups(NamedTuple):
    """Events that hold each other, as lists: the group of each, who follows, and a group's last and size.

    Shape: [events].
    """

    group: Ints
    following: Ints
    last: Ints
    size: Ints


class Moving(NamedTuple):
    """The group that moves, and arcs between it and what stands still, in heaps of their own for both ways.

    ``keys`` are places on the way at which an arc stops it, ``steps`` those of the arcs. ``tally``: how many
    are in each heap, and how many members it has.

    Units: ticks.
    Shape: ``keys``, ``steps`` [2, steps]; ``member`` [events]; ``tally`` [3].
    """

    keys: Ints
    steps: Indices
    member: Indices
    tally: Ints


def corner_durations(frontier: Frontier, time_s: float) -> Ints:
    """Return optimal durations in ticks within ``time_s``, as many of them as can be those of an option.

    The flow states what is optimal. An activity whose flow is at the edge of two rungs may last anything
    between them, every other has its one duration. Where flow waits nothing waits longer. Between two
    breakpoints the mean of both is optimal too, but splits what either splits. So events that hold each other
    move as one until something else stops them, and so on: a corner.

    Raises:
        InfeasibleError: a time below T_min.
    Cost: linear in the network for a breakpoint; O(arcs log arcs) between two.
    Source: Megiddo 1991 (from an optimal solution to an optimal basis), here on potentials of a network.
    """
    network, whole = frontier.network, frontier.whole
    left, right, share = frontier.bracket(time_s)
    way = frontier.event[right] - frontier.event[left]
    event = frontier.event[left] + np.floor(way * share).astype(np.int64)
    flow = frontier.flow[left]
    least, most = _windows(flow, network)
    tail, head = network.to[network.back], network.to[network.ahead]
    if share:
        _move(event, ArcWindows(network.first, network.arc, network.ahead, tail, head, least, most))
    count = len(whole.problem)
    return np.asarray(np.clip(event[head[:count]] - event[tail[:count]], whole.fastest, whole.slowest))


def _windows(flow: Ints, network: Network) -> tuple[Ints, Ints]:
    """Between which lengths every arc may be without a loss, at this flow."""
    bottom, length, top = network.bottom, network.length, network.top
    rung = bottom.copy()
    higher = np.flatnonzero(top[rung] <= flow)
    while len(higher):
        rung[higher] += 1
        higher = higher[top[rung[higher]] <= flow[higher]]
    at_edge = (rung > bottom) & (top[rung - 1] == flow)
    most = np.where(flow == 0, OPEN, length[np.where(at_edge, rung - 1, rung)])
    return length[rung], most


@tiered
def _move(event: Ints, windows: ArcWindows) -> None:
    """Shift groups of events that hold each other until all hang on the source."""
    count = len(event)
    each, alone = np.arange(count).astype(np.int64), np.full(count, -1).astype(np.int64)
    groups = Groups(each, alone, each.copy(), np.ones(count, dtype=np.int64))
    _unite(groups, SOURCE, SINK)
    for which in range(len(windows.tail)):
        _hold(event, windows, groups, which)
    keys, steps = np.empty((2, len(windows.arc)), np.int64), np.empty((2, len(windows.arc)), np.int32)
    moving = Moving(keys, steps, np.empty(count, np.int32), np.zeros(3, np.int64))
    still = groups.group[SOURCE]
    for node in range(count):
        if groups.group[node] != still:
            _move_one(event, windows, groups, moving, node)


@inner
def _move_one(event: Ints, windows: ArcWindows, groups: Groups, moving: Moving, node: int) -> None:
    """Shift the group of one node, and all that it meets, until it meets the source's; add it to that.

    Arcs to what stands still wait in two heaps, by how far the group may be when they stop it.
    """
    tally, still, way, met = moving.tally, groups.group[SOURCE], number(0), False
    tally[LATER] = tally[EARLIER] = tally[MEMBERS] = 0
    _join(event, windows, groups, moving, groups.group[node], way)
    while not met:
        later, earlier = _nearest(windows, groups, moving, LATER), _nearest(windows, groups, moving, EARLIER)
        side = LATER if later - way < earlier + way else EARLIER
        way = later if side == LATER else -earlier
        while tally[side] > 0 and moving.keys[side, 0] <= (way if side == LATER else -way) + TICKS:
            other = groups.group[_other_end(windows, moving.steps[side, 0])]
            _drop(moving, side)
            if other == still:
                met = True
            elif other != MOVING:
                _join(event, windows, groups, moving, other, way)
    for place in range(tally[MEMBERS]):
        member = moving.member[place]
        event[member] += way
        groups.group[member] = still


@inner
def _join(event: Ints, windows: ArcWindows, groups: Groups, moving: Moving, name: int, way: int) -> None:
    """Let a group move from here on: its events are those at the beginning of the way."""
    begin, member = moving.tally[MEMBERS], name
    while member >= 0:
        groups.group[member] = MOVING
        event[member] -= way
        moving.member[moving.tally[MEMBERS]] = member
        moving.tally[MEMBERS] += 1
        member = groups.following[member]
    for place in range(begin, moving.tally[MEMBERS]):
        member = moving.member[place]
        for step in range(windows.first[member], windows.first[member + 1]):
            other = _other_end(windows, step)
            if groups.group[other] != MOVING:
                _wait(windows, moving, step, event[other] - event[member])


@inner
def _wait(windows: ArcWindows, moving: Moving, step: int, apart: int) -> None:
    """Note where on the way, later and earlier, an arc to an event that stands still stops the group."""
    which = windows.arc[step]
    leaves = windows.ahead[which] == step
    least, most = windows.least[which], windows.most[which]
    nearest, farthest = (apart - least, most - apart) if leaves else (most + apart, -apart - least)
    if leaves or most < OPEN:
        _add(moving, LATER, nearest, step)
    if not leaves or most < OPEN:
        _add(moving, EARLIER, farthest, step)


@inner
def _add(moving: Moving, side: int, key: int, step: int) -> None:
    push(moving.keys[side], moving.steps[side], moving.tally[side], key, step)
    moving.tally[side] += 1


@inner
def _drop(moving: Moving, side: int) -> None:
    pop(moving.keys[side], moving.steps[side], moving.tally[side])
    moving.tally[side] -= 1


@inner
def _nearest(windows: ArcWindows, groups: Groups, moving: Moving, side: int) -> int:
    """The first place on the way where an arc to what stands still stops the group; OPEN if none does."""
    while moving.tally[side] > 0:
        if groups.group[_other_end(windows, moving.steps[side, 0])] != MOVING:
            return int(moving.keys[side, 0])
        _drop(moving, side)
    return OPEN


@inlined
def _other_end(windows: ArcWindows, step: int) -> int:
    which = windows.arc[step]
    return int(windows.head[which] if windows.ahead[which] == step else windows.tail[which])


@inner
def _hold(event: Ints, windows: ArcWindows, groups: Groups, which: int) -> None:
    """Unite the ends of an arc whose window is closed."""
    tail, head = windows.tail[which], windows.head[which]
    window = event[head] - event[tail]
    if window <= windows.least[which] + TICKS or window >= windows.most[which] - TICKS:
        _unite(groups, tail, head)


@inner
def _unite(groups: Groups, one: int, other: int) -> None:
    """Put the smaller group behind the larger; a group is named after its first member."""
    group, following, last, size = groups
    large, small = group[one], group[other]
    if large == small:
        return
    if size[large] < size[small]:
        large, small = small, large
    member = small
    while member >= 0:
        group[member] = large
        member = following[member]
    following[last[large]] = small
    last[large] = last[small]
    size[large] += size[small]
