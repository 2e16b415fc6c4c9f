"""Iterations under a policy, and how their mean cost follows from every number of it: compiled.

A computation begins ``x`` late, after one on its rank that began ``y`` late. From ``latency_s`` after its
beginning it goes on as fast as one that lasts ``lasts_s - weight[0] x - weight[1] y`` on average. Until then
it is as fast as one that lasts ``lasts_s``. What runs it has whole clocks. The one that was asked for ahead
is the nearest to ``lasts_s``. One or two others come after it, so that it ends when it is to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.plan.feedback.course import FEATURES, Floats, HullCurves, Ints, LearningGraph
from perseus_ds.solver.compiling.compiled import allocating, compiled, inlined, inner

TOO_FAST, TOO_SLOW = -1, -2
_LEAK = 0.3  # of a gradient that points back inside, at an end of the hull


class Weights(NamedTuple):
    """A policy's numbers: when each computation begins on average, and what it lasts by how late it does.

    Shape: ``begin_s``, ``lasts_s`` [nodes]; ``weight`` [tables, FEATURES].
    """

    begin_s: Floats
    lasts_s: Floats
    weight: Floats


class Gradient(NamedTuple):
    """By how much the mean cost rises with each of a policy's numbers."""

    lasts_s: Floats
    weight: Floats


class Track(NamedTuple):
    """One iteration: when all began and ended, what durations were wished for, and who waited for whom.

    ``piece`` is where on its hull a wish lies, TOO_FAST or TOO_SLOW beyond the ends. ``before`` is the share
    of the work done before the wished clock is in force, ``last`` the predecessor that was waited for.

    Shape: [nodes].
    """

    start_s: Floats
    end_s: Floats
    late_s: Floats
    piece: Ints
    before: Floats
    last: Ints


class Entry(NamedTuple):
    """What each computation lasts and costs as fast as it begins, and the nearest point of its hull.

    Shape: [nodes].
    """

    lasts_s: Floats
    cost_j: Floats
    point: Ints


@inlined
def _piece_of(duration_s: Floats, first: int, end: int, wish_s: float) -> int:
    """Find the piece of a hull that a duration lies on; TOO_FAST and TOO_SLOW beyond its ends."""
    if wish_s <= duration_s[first]:
        return TOO_FAST
    if wish_s >= duration_s[end - 1]:
        return TOO_SLOW
    while end - first > 1:
        middle = (first + end) // 2
        if duration_s[middle] <= wish_s:
            first = middle
        else:
            end = middle
    return first


@inlined
def _slope(duration_s: Floats, cost_j: Floats, piece: int) -> float:
    return (cost_j[piece + 1] - cost_j[piece]) / (duration_s[piece + 1] - duration_s[piece])  # type: ignore[no-any-return]


@inlined
def _nearest(duration_s: Floats, first: int, end: int, wish_s: float) -> int:
    """Find the point of a hull whose duration is nearest."""
    piece = _piece_of(duration_s, first, end, wish_s)
    if piece < 0:
        return first if piece == TOO_FAST else end - 1
    return piece + 1 if 2.0 * wish_s > duration_s[piece] + duration_s[piece + 1] else piece


@inlined
def _lasting(curves: HullCurves, table: int, wish_s: float) -> tuple[float, float, int]:
    """What a wish comes to: duration and cost on the hull, and the piece."""
    first, end = curves.first[table], curves.first[table + 1]
    duration_s, cost_j = curves.duration_s, curves.cost_j
    piece = _piece_of(duration_s, first, end, wish_s)
    if piece < 0:
        point = first if piece == TOO_FAST else end - 1
        return duration_s[point], cost_j[point], piece
    beyond_s = wish_s - duration_s[piece]
    return wish_s, cost_j[piece] + _slope(duration_s, cost_j, piece) * beyond_s, piece


@inlined
def _other(  # noqa: PLR0917 - compiled code knows no names
    duration_s: Floats, first: int, end: int, point: int, wish_s: float, latency_s: float
) -> int:
    """Find the point to change to, so that all lasts ``wish_s``: the nearest one that is enough for it."""
    own_s, other = duration_s[point], point
    rest = 1.0 - latency_s / own_s
    if rest <= 0.0:
        return point
    if wish_s < own_s and point > first:
        other -= 1
        while other > first and latency_s + rest * duration_s[other] > wish_s:
            other -= 1
    elif wish_s > own_s and point < end - 1:
        other += 1
        while other < end - 1 and latency_s + rest * duration_s[other] < wish_s:
            other += 1
    return other


@inlined
def _changing(  # noqa: PLR0917 - compiled code knows no names
    curves: HullCurves,
    table: int,
    point: int,
    wish_s: float,
    latency_s: float,
    twice: bool,  # noqa: FBT001
    factor: float,
) -> tuple[float, float]:
    """What a computation of ``factor`` times its work lasts and costs that begins at a point of its hull.

    It changes clocks at moments that would have it last ``wish_s`` on average. That is once, or to the slower
    of the two clocks around that and then to the faster.
    """
    duration_s, cost_j = curves.duration_s, curves.cost_j
    other = _other(duration_s, curves.first[table], curves.first[table + 1], point, wish_s, latency_s)
    own_s, first, then = duration_s[point], point, other
    if other == point:
        return factor * own_s, cost_j[point]
    if twice and other < point:
        first = other + 1
    elif twice:
        first, then = other, other - 1
    first_s, then_s, before = duration_s[first], duration_s[then], latency_s / own_s
    after_s = first_s * (wish_s - latency_s - (1.0 - before) * then_s) / (first_s - then_s)
    before = min(factor, before)
    share = min(factor - before, max(0.0, after_s / first_s))
    rest = factor - before - share
    return (
        before * own_s + share * first_s + rest * then_s,
        (before * cost_j[point] + share * cost_j[first] + rest * cost_j[then]) / factor,
    )


@allocating
def _entry(course: LearningGraph, curves: HullCurves, weights: Weights) -> Entry:
    """What computations begin as."""
    nodes = len(course.table)
    lasts_s, cost_j, point = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes, np.int64)
    for node in range(nodes):
        table = course.table[node]
        if table >= 0:
            found = _lasting(curves, table, weights.lasts_s[node])
            lasts_s[node], cost_j[node] = found[0], found[1]
            point[node] = _nearest(
                curves.duration_s, curves.first[table], curves.first[table + 1], lasts_s[node]
            )
    return Entry(lasts_s, cost_j, point)


@inner
def _forward(  # noqa: PLR0917 - compiled code knows no names
    course: LearningGraph,
    curves: HullCurves,
    weights: Weights,
    entry: Entry,
    track: Track,
    factor: Floats,
    latency_s: float,
    changes: int,
) -> float:
    """Run one iteration; return the cost of its computations.

    ``changes`` is how often a computation may change its clock, 1 or 2; 0: as if there was a clock for every
    duration.
    """
    cost_j, lasts_s, weight = 0.0, weights.lasts_s, weights.weight
    end_s, late_s = track.end_s, track.late_s
    for node in course.order:
        start_s, last = 0.0, -1
        for edge in range(course.first_before[node], course.first_before[node + 1]):
            ready_s = end_s[course.before[edge]] + course.delay_s[edge]
            if ready_s > start_s or last < 0:
                start_s, last = ready_s, course.before[edge]
        track.start_s[node], track.last[node] = start_s, last
        if course.table[node] < 0:
            end_s[node] = start_s + course.fixed_s[node]
            continue
        late_s[node] = start_s - weights.begin_s[node]
        wish_s, at = lasts_s[node], node
        for feature in range(FEATURES):
            if at >= 0:
                wish_s -= weight[course.table[node], feature] * late_s[at]
                at = course.previous[at]
        wish_s, wish_j, track.piece[node] = _lasting(curves, course.table[node], wish_s)
        if changes:
            ahead = min(1.0, latency_s / entry.lasts_s[node])
            wish_s = ahead * entry.lasts_s[node] + (1.0 - ahead) * wish_s
            took_s, took_j = _changing(
                curves, course.table[node], entry.point[node], wish_s, latency_s, changes > 1, factor[node]
            )
            end_s[node] = start_s + took_s
            cost_j += took_j
            continue
        before = min(1.0, latency_s / (factor[node] * entry.lasts_s[node]))
        track.before[node] = before
        end_s[node] = start_s + factor[node] * (before * entry.lasts_s[node] + (1.0 - before) * wish_s)
        cost_j += before * entry.cost_j[node] + (1.0 - before) * wish_j
    return cost_j


@allocating
def _backward(  # noqa: PLR0917 - compiled code knows no names
    course: LearningGraph,
    curves: HullCurves,
    weights: Weights,
    track: Track,
    factor: Floats,
    price_w: float,
    gradient: Gradient,
) -> None:
    """Add one iteration's part in every number, from its end backwards.

    ``of_end`` and ``of_late`` are by how much the cost rises with a computation's end, and with its lateness
    where that changes wishes.
    """
    nodes, first, duration_s, cost_j = len(course.order), curves.first, curves.duration_s, curves.cost_j
    of_end, of_late = np.zeros(nodes), np.zeros(nodes)
    of_end[np.argmax(track.end_s)] = price_w
    for place in range(nodes - 1, -1, -1):
        node = course.order[place]
        table, piece = course.table[node], track.piece[node]
        if table >= 0 and first[table + 1] - first[table] > 1:
            on = piece
            if piece < 0:
                on = first[table] if piece == TOO_FAST else first[table + 1] - 2
            of_wish = _slope(duration_s, cost_j, on) + of_end[node] * factor[node]
            of_wish *= 1.0 - track.before[node]
            if piece >= 0:
                gradient.lasts_s[node] += of_wish
                at = node
                for feature in range(FEATURES):
                    if at >= 0:
                        gradient.weight[table, feature] -= of_wish * track.late_s[at]
                        of_late[at] -= of_wish * weights.weight[table, feature]
                        at = course.previous[at]
            elif (piece == TOO_FAST) == (of_wish < 0.0):
                gradient.lasts_s[node] += _LEAK * of_wish
        if track.last[node] >= 0:
            of_end[track.last[node]] += of_end[node] + of_late[node]


@allocating
def _track(nodes: int) -> Track:
    numbers, whole = np.zeros((4, nodes)), np.full((2, nodes), -1, np.int64)
    return Track(numbers[0], numbers[1], numbers[2], whole[0], numbers[3], whole[1])


@compiled
def learned(  # noqa: PLR0917 - compiled code knows no names
    course: LearningGraph,
    curves: HullCurves,
    weights: Weights,
    factor: Floats,
    latency_s: float,
    price_w: float,
    gradient: Gradient,
) -> tuple[float, float]:
    """Add the gradient over all draws; return the mean cost of computations and the mean time.

    Shape: ``factor`` [draws, nodes].
    Cost: linear in draws, nodes and edges; about 0.2 us for a node of a draw.
    """
    track, cost_j, time_s = _track(len(course.order)), 0.0, 0.0
    entry = _entry(course, curves, weights)
    for draw in range(len(factor)):
        cost_j += _forward(course, curves, weights, entry, track, factor[draw], latency_s, 0)
        time_s += track.end_s.max()
        _backward(course, curves, weights, track, factor[draw], price_w, gradient)
    return cost_j / len(factor), time_s / len(factor)


class Seen(NamedTuple):
    """What was seen of drawn iterations.

    Shape: ``time_s`` [draws]; ``most_late_s``, ``mean_late_s`` [nodes]: how late or early each began at
    most, and how late on average.
    """

    time_s: Floats
    most_late_s: Floats
    mean_late_s: Floats


@compiled
def drawn(  # noqa: PLR0917 - compiled code knows no names
    course: LearningGraph,
    curves: HullCurves,
    weights: Weights,
    factor: Floats,
    latency_s: float,
    changes: int,
    seen: Seen,
) -> float:
    """Run all draws, with so many ``changes`` in a computation; return the mean cost of computations.

    Shape: ``factor`` [draws, nodes].
    """
    track, cost_j = _track(len(course.order)), 0.0
    entry = _entry(course, curves, weights)
    for draw in range(len(factor)):
        cost_j += _forward(course, curves, weights, entry, track, factor[draw], latency_s, changes)
        seen.time_s[draw] = track.end_s.max()
        for node in range(len(course.order)):
            seen.most_late_s[node] = max(seen.most_late_s[node], abs(track.late_s[node]))
            seen.mean_late_s[node] += track.late_s[node] / len(factor)
    return cost_j / len(factor)
