"""A corner of the optimal face: as few durations between two options as an optimal basis allows."""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import inner, tiered
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.problem import Indices, Ints

OPEN = 2**62
"""A window without an upper end: what carries no flow may wait."""
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


def corner_durations(frontier: Frontier, time_s: float) -> Ints:
    """Return optimal durations in ticks within ``time_s``, as many of them as can be those of an option.

    The flow states what is optimal. An activity whose flow is at the edge of two rungs may last anything
    between them, every other has its one duration. Where flow waits nothing waits longer. Between two
    breakpoints the mean of both is optimal too, but splits what either splits. So events that hold each other
    move as one until something else stops them, and so on: a corner.

    Raises:
        InfeasibleError: a time below T_min.
    Cost: linear in the network for a breakpoint; groups times their arcs between two.
    Source: Megiddo 1991 (from an optimal solution to an optimal basis), here on potentials of a network.
    """
    network, whole = frontier.network, frontier.whole
    left, right, share = frontier.bracket(time_s)
    way = frontier.event[right] - frontier.event[left]
    event = frontier.event[left] + np.floor(way * share).astype(np.int64)
    flow = frontier.flow[left]
    least, most = np.empty_like(flow), np.empty_like(flow)
    _fill_windows(flow, network.bottom, network.length, network.top, least, most)
    tail, head = network.to[network.back], network.to[network.ahead]
    if share:
        _move(event, ArcWindows(network.first, network.arc, network.ahead, tail, head, least, most))
    count = len(whole.problem)
    return np.asarray(np.clip(event[head[:count]] - event[tail[:count]], whole.fastest, whole.slowest))


@tiered
def _fill_windows(flow: Ints, bottom: Indices, length: Ints, top: Ints, least: Ints, most: Ints) -> None:
    """Between which lengths every arc may be without a loss, at this flow."""
    for arc in range(len(flow)):
        rung = bottom[arc]
        while top[rung] <= flow[arc]:
            rung += 1
        least[arc] = length[rung]
        most[arc] = length[rung]
        if flow[arc] == 0:
            most[arc] = OPEN
        elif rung > bottom[arc] and top[rung - 1] == flow[arc]:
            most[arc] = length[rung - 1]


@tiered
def _move(event: Ints, windows: ArcWindows) -> None:
    """Shift groups of events that hold each other until all hang on the source."""
    count = len(event)
    each, alone = np.arange(count).astype(np.int64), np.full(count, -1).astype(np.int64)
    groups = Groups(each, alone, each.copy(), np.ones(count, dtype=np.int64))
    group, following, last, _ = groups
    _unite(groups, SOURCE, SINK)
    for which in range(len(windows.tail)):
        _hold(event, windows, groups, which)
    for node in range(count):
        while group[node] != group[SOURCE]:
            name = group[node]
            shift = _room(event, windows, groups, name)
            member, end = name, last[name]
            while member >= 0:
                event[member] += shift
                member = following[member]
            member = name
            while member >= 0:
                onward = following[member] if member != end else -1
                for step in range(windows.first[member], windows.first[member + 1]):
                    _hold(event, windows, groups, windows.arc[step])
                member = onward


@inner
def _hold(event: Ints, windows: ArcWindows, groups: Groups, which: int) -> None:
    """Unite the ends of an arc whose window is closed."""
    tail, head = windows.tail[which], windows.head[which]
    window = event[head] - event[tail]
    if window <= windows.least[which] + TICKS or window >= windows.most[which] - TICKS:
        _unite(groups, tail, head)


@inner
def _room(event: Ints, windows: ArcWindows, groups: Groups, name: int) -> int:
    """The shorter way, later or (negative) earlier, that a group can move until an arc stops it."""
    first, arc, ahead, tail, head, least, most = windows
    group, following = groups.group, groups.following
    later, earlier = OPEN, OPEN
    member = name
    while member >= 0:
        for step in range(first[member], first[member + 1]):
            which = arc[step]
            leaves = ahead[which] == step
            if group[head[which] if leaves else tail[which]] == name:
                continue
            window = event[head[which]] - event[tail[which]]
            up = OPEN if most[which] == OPEN else most[which] - window
            later = min(later, window - least[which] if leaves else up)
            earlier = min(earlier, up if leaves else window - least[which])
        member = following[member]
    return later if later < earlier else -earlier


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
