"""Plans that are the relaxed optimum itself: an activity may do its work at two options in turn."""
# ruff: noqa: PLR0917 - compiled code: records and arrays by position

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.schedule.dag import Graph
from perseus_ds.solver.compiled import compiled, inner, tiered
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.network import SINK, SOURCE, Network, earliest_starts, latest_starts, longest_seconds
from perseus_ds.solver.problem import Floats, Indices, Ints, Plans, blend, long_enough, pareto_front
from perseus_ds.solver.sweep import pop, push

# A corner of the optimal face: as few durations between two options as an optimal basis allows.


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
    """Events that hold each other, as lists, and the group that moves.

    Of each event its group and who follows, of a group its last member and size. ``member`` are those of the
    group that moves. Arcs between it and what stands still are in heaps of their own for both ways: ``keys``
    are places on the way at which an arc stops it, ``steps`` those of the arcs. ``tally``: how many are in
    each heap, and how many members it has.

    Units: ticks.
    Shape: ``keys``, ``steps`` [2, steps]; ``tally`` [3]; the others [events].
    """

    group: Ints
    following: Ints
    last: Ints
    size: Ints
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
    keys, steps = np.empty((2, len(windows.arc)), np.int64), np.empty((2, len(windows.arc)), np.int32)
    sizes, member, tally = np.ones(count, dtype=np.int64), np.empty(count, np.int32), np.zeros(3, np.int64)
    groups = Groups(each, alone, each.copy(), sizes, keys, steps, member, tally)
    _unite(groups, SOURCE, SINK)
    for which in range(len(windows.tail)):
        tail, head = windows.tail[which], windows.head[which]
        window = event[head] - event[tail]
        if window <= windows.least[which] + TICKS or window >= windows.most[which] - TICKS:  # it is closed
            _unite(groups, tail, head)
    for node in range(count):
        if groups.group[node] != groups.group[SOURCE]:
            _move_one(event, windows, groups, node)


@inner
def _move_one(event: Ints, windows: ArcWindows, groups: Groups, node: int) -> None:
    """Shift the group of one node, and all that it meets, until it meets the source's; add it to that.

    Arcs to what stands still wait in two heaps, by how far the group may be when they stop it.
    """
    tally, still, way, met = groups.tally, groups.group[SOURCE], 0, False
    tally[LATER] = tally[EARLIER] = tally[MEMBERS] = 0
    _join(event, windows, groups, groups.group[node], way)
    while not met:
        later, earlier = _nearest(windows, groups, LATER), _nearest(windows, groups, EARLIER)
        side = LATER if later - way < earlier + way else EARLIER
        way = later if side == LATER else -earlier
        while tally[side] > 0 and groups.keys[side, 0] <= (way if side == LATER else -way) + TICKS:
            other = groups.group[_other_end(windows, groups.steps[side, 0])]
            _drop(groups, side)
            if other == still:
                met = True
            elif other != MOVING:
                _join(event, windows, groups, other, way)
    for place in range(tally[MEMBERS]):
        member = groups.member[place]
        event[member] += way
        groups.group[member] = still


@inner
def _join(event: Ints, windows: ArcWindows, groups: Groups, name: int, way: int) -> None:
    """Let a group move from here on: its events are those at the beginning of the way.

    Where on the way, later and earlier, an arc to an event that stands still stops the group is noted.
    """
    begin, member = groups.tally[MEMBERS], name
    while member >= 0:
        groups.group[member] = MOVING
        event[member] -= way
        groups.member[groups.tally[MEMBERS]] = member
        groups.tally[MEMBERS] += 1
        member = groups.following[member]
    for place in range(begin, groups.tally[MEMBERS]):
        member = groups.member[place]
        for step in range(windows.first[member], windows.first[member + 1]):
            other = _other_end(windows, step)
            if groups.group[other] == MOVING:
                continue
            which, apart = windows.arc[step], event[other] - event[member]
            leaves = windows.ahead[which] == step
            least, most = windows.least[which], windows.most[which]
            nearest, farthest = (apart - least, most - apart) if leaves else (most + apart, -apart - least)
            if leaves or most < OPEN:
                _add(groups, LATER, nearest, step)
            if not leaves or most < OPEN:
                _add(groups, EARLIER, farthest, step)


@inner
def _add(groups: Groups, side: int, key: int, step: int) -> None:
    push(groups.keys[side], groups.steps[side], groups.tally[side], key, step)
    groups.tally[side] += 1


@inner
def _drop(groups: Groups, side: int) -> None:
    pop(groups.keys[side], groups.steps[side], groups.tally[side])
    groups.tally[side] -= 1


@inner
def _nearest(windows: ArcWindows, groups: Groups, side: int) -> int:
    """The first place on the way where an arc to what stands still stops the group; OPEN if none does."""
    while groups.tally[side] > 0:
        if groups.group[_other_end(windows, groups.steps[side, 0])] != MOVING:
            return int(groups.keys[side, 0])
        _drop(groups, side)
    return OPEN


@inner
def _other_end(windows: ArcWindows, step: int) -> int:
    which = windows.arc[step]
    return int(windows.head[which] if windows.ahead[which] == step else windows.tail[which])


@inner
def _unite(groups: Groups, one: int, other: int) -> None:
    """Put the smaller group behind the larger; a group is named after its first member."""
    group, following, last, size = groups.group, groups.following, groups.last, groups.size
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


# Give the time that rounding gained to activities that can still become slower.


def reclaim(frontier: Frontier, duration_s: Floats, time_s: float, least_part_s: float) -> Ints:
    """Lengthen what has slack, dearest first, up to the slowest option; in ticks.

    An activity that may not be split stops at an option, any other where its slack ends.

    Cost: linear in activities, and in those that each longer one moves.
    """
    whole, problem, hulls = frontier.whole, frontier.whole.problem, frontier.whole.hulls
    duration = whole.tick.whole(duration_s)
    end = max(int(whole.tick.whole(time_s)), whole.longest(duration))
    least_j, cost_j = np.empty((2, len(problem)))
    for hull, mine in zip(hulls, problem.members(), strict=True):
        least_j[mine], cost_j[mine] = hull.cost_j[-1], hull.cost_at(whole.tick.real(duration[mine]))
    order = np.argsort((least_j - cost_j) / np.maximum(whole.slowest - duration, 1), kind="stable")
    first = np.concatenate(([0], np.cumsum([len(hull.option) for hull in hulls]))).astype(np.int64)
    lengths = whole.tick.whole(np.concatenate([hull.duration_s for hull in hulls]))
    packed = PackedHulls(first, lengths, problem.table_of, int(whole.tick.whole(least_part_s)))
    _lengthen(whole.graph, whole.delay, duration, end, order, packed)
    return duration


class PackedHulls(NamedTuple):
    """Lengths of all hulls, one behind the other, each activity's hull, and the shortest part of a split.

    Units: ticks.
    Shape: ``first`` [hulls + 1]; ``length`` [points]; ``table_of`` [activities].
    """

    first: Ints
    length: Ints
    table_of: Indices
    least: int


class Direction(NamedTuple):
    """A graph from one of its ends: how far from that end each activity starts, and which way others follow.

    From the other end time runs backwards: what was after comes before.

    Shape: ``start`` [activities]; ``first`` [activities + 1]; ``onward``, ``arc`` [precedences].
    """

    start: Ints
    first: Indices
    onward: Indices
    arc: Indices
    step: int


@compiled
def _lengthen(graph: Graph, delay: Ints, duration: Ints, end: int, order: Ints, hulls: PackedHulls) -> None:
    place, waiting = np.empty(len(duration), np.int64), np.zeros(len(duration), np.bool_)
    soon, late = earliest_starts(graph, delay, duration), latest_starts(graph, delay, duration, end)
    for at in range(len(duration)):
        one = graph.order[at]
        place[one] = at
        late[one] = end - late[one] - duration[one]
    ahead = Direction(soon, graph.first_after, graph.after, graph.after_arc, 1)
    back = Direction(late, graph.first_before, graph.before, graph.before_arc, -1)
    for one in order:
        longer = _longest_within(hulls, hulls.table_of[one], end - late[one] - soon[one])
        if longer > duration[one]:
            duration[one] = longer
            _move_on(ahead, delay, duration, graph.order, waiting, place[one])
            _move_on(back, delay, duration, graph.order, waiting, place[one])


@inner
def _longest_within(hulls: PackedHulls, table: int, most: int) -> int:
    """The longest duration that fits: an option's, or a split behind it, both parts long enough."""
    lengths, at, above = hulls.length, hulls.first[table], hulls.first[table + 1]
    while at + 1 < above and lengths[at + 1] <= most:
        at += 1
    if at + 1 < above:  # as much of the slower option as fits
        fast, slow = lengths[at], lengths[at + 1]
        part = (most - fast) / (slow - fast)
        if part > 0.0 and fast > 0:
            part = min(part, 1.0 - hulls.least / fast)
            if part * slow >= hulls.least:
                return int(fast + np.int64(part * (slow - fast)))
    return int(lengths[at])


@inner
def _move_on(
    side: Direction, delay: Ints, duration: Ints, order: Indices, waiting: NDArray[np.bool_], place: int
) -> None:
    """Move the starts that the end of an activity now holds up, in topological order."""
    start, first, onward, arc, step = side
    waiting[order[place]], left = True, 1
    while left > 0:
        here = order[place]
        place += step
        if not waiting[here]:
            continue
        waiting[here] = False
        left -= 1
        for row in range(first[here], first[here + 1]):
            then = onward[row]
            ready = start[here] + duration[here] + delay[arc[row]]
            if ready > start[then]:
                left += not waiting[then]
                start[then], waiting[then] = ready, True


FARTHEST = 2**51
"""Further than any two lengths can be apart in ticks."""
BLOCK = 64
"""Plans whose options are looked up at once."""


def split(frontier: Frontier, times_s: Floats, *, least_part_s: float = 0.0) -> Plans:
    """Choose for every wanted time the optimal durations, each from the two options around it.

    A duration between two options is exactly on the hull when part of the work is done at one and the rest at
    the other. With ``least_part_s`` 0 what is left of a gap is rounding. No part is shorter than
    ``least_part_s``: the faster option takes over where one would be, and the time that it gains is given to
    others.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: linear in activities per time.
    """
    frontier.refuse_below(times_s)
    problem, wanted_s = frontier.whole.problem, np.sort(np.asarray(times_s))
    blocks = np.split(wanted_s, range(BLOCK, len(wanted_s), BLOCK))
    rows = [_plans(frontier, block_s.tolist(), least_part_s) for block_s in blocks]
    choice, other, share = (np.concatenate(column) for column in zip(*rows, strict=True))
    duration_s, cost_j = blend(problem, choice, other, share)
    time_s = longest_seconds(problem, frontier.whole.graph, duration_s)
    total_j = cost_j.sum(axis=1)
    best = pareto_front(time_s, total_j)
    return Plans(time_s, total_j, frontier.bounds_at(time_s), choice, other, share).at(best)


def _plans(
    frontier: Frontier, times_s: Sequence[float], least_part_s: float
) -> tuple[Indices, Indices, Floats]:
    """Return the two options of every activity and the share of the first, which is the faster.

    Shape: returns [times, activities] each.
    """
    duration = np.array([corner_durations(frontier, time_s) for time_s in times_s])
    choice, other, share = _around(frontier, duration, least_part_s)
    if least_part_s <= 0.0:
        return choice, other, share
    duration_s, _ = blend(frontier.whole.problem, choice, other, share)
    rows = zip(duration_s, times_s, strict=True)
    duration = np.array([reclaim(frontier, row_s, time_s, least_part_s) for row_s, time_s in rows])
    return _around(frontier, duration, least_part_s)


def _around(frontier: Frontier, duration: Ints, least_part_s: float) -> tuple[Indices, Indices, Floats]:
    """Name the options on the hull around every duration; no part is shorter than allowed.

    Shape: ``duration`` [plans, activities]; returns the same.
    """
    whole = frontier.whole
    table, hulls = whole.problem.table_of.astype(np.int64), whole.hulls
    sizes = np.array([len(hull.option) for hull in hulls])
    lengths = whole.tick.whole(np.concatenate([hull.duration_s for hull in hulls]))
    option = np.concatenate([hull.option for hull in hulls]).astype(np.int32)
    duration_s = np.concatenate([hull.duration_s for hull in hulls])
    last = np.cumsum(sizes) - 1
    row = np.repeat(np.arange(len(hulls)), sizes)  # hull behind hull, each ascending: one sorted column
    at = np.searchsorted(row * FARTHEST + lengths, table * FARTHEST + duration + TICKS, side="right") - 1
    at = np.clip(at, (last - sizes + 1)[table], last[table])
    above = np.minimum(at + 1, last[table])
    between = (duration > lengths[at] + TICKS) & (above > at)
    width = np.where(between, lengths[above] - lengths[at], 1)
    fast = np.where(between, (lengths[above] - duration) / width, 1.0)
    fast = long_enough(fast, duration_s[at], duration_s[above], least_part_s)
    return option[at], np.where(fast < 1.0, option[above], option[at]), fast
