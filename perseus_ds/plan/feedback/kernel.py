"""Iterations under a policy, and how their mean cost follows from every number of it: compiled.

A computation begins ``x`` late, after one on its rank that began ``y`` late. It is given the clock at which
it lasts ``lasts_s - weight[0] x - weight[1] y`` on average. That clock is in force ``latency_s`` after the
beginning. Until then it runs at the one that was asked for ahead, at which it lasts ``lasts_s``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.plan.feedback.course import FEATURES, Floats, HullCurves, Ints, LearningGraph
from perseus_ds.solver.compiling.compiled import compiled, inlined, inner

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
    """What each computation lasts and costs at the clock that it begins at.

    Shape: [nodes].
    """

    lasts_s: Floats
    cost_j: Floats


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
def _lasting(curves: HullCurves, table: int, wish_s: float, whole: bool) -> tuple[float, float, int]:  # noqa: FBT001
    """What a wish comes to: duration and cost on the hull, or at its nearest point, and the piece."""
    first, end = curves.first[table], curves.first[table + 1]
    duration_s, cost_j = curves.duration_s, curves.cost_j
    piece = _piece_of(duration_s, first, end, wish_s)
    if whole or piece < 0:
        point = _nearest(duration_s, first, end, wish_s)
        return duration_s[point], cost_j[point], piece
    beyond_s = wish_s - duration_s[piece]
    return wish_s, cost_j[piece] + _slope(duration_s, cost_j, piece) * beyond_s, piece


@inner
def _entry(course: LearningGraph, curves: HullCurves, weights: Weights, whole: bool) -> Entry:  # noqa: FBT001
    """What the clocks that are asked for ahead come to."""
    nodes = len(course.table)
    lasts_s, cost_j = np.zeros(nodes), np.zeros(nodes)
    for node in range(nodes):
        if course.table[node] >= 0:
            found = _lasting(curves, course.table[node], weights.lasts_s[node], whole)
            lasts_s[node], cost_j[node] = found[0], found[1]
    return Entry(lasts_s, cost_j)


@inner
def _forward(  # noqa: PLR0917 - compiled code knows no names
    course: LearningGraph,
    curves: HullCurves,
    weights: Weights,
    entry: Entry,
    track: Track,
    factor: Floats,
    latency_s: float,
    whole: bool,  # noqa: FBT001
) -> float:
    """Run one iteration; return the cost of its computations."""
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
        wish_s, wish_j, track.piece[node] = _lasting(curves, course.table[node], wish_s, whole)
        before = min(1.0, latency_s / (factor[node] * entry.lasts_s[node]))
        track.before[node] = before
        end_s[node] = start_s + factor[node] * (before * entry.lasts_s[node] + (1.0 - before) * wish_s)
        cost_j += before * entry.cost_j[node] + (1.0 - before) * wish_j
    return cost_j


@inner
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


@inner
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
    entry = _entry(course, curves, weights, False)
    for draw in range(len(factor)):
        cost_j += _forward(course, curves, weights, entry, track, factor[draw], latency_s, False)
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
    whole: bool,  # noqa: FBT001
    seen: Seen,
) -> float:
    """Run all draws, at ``whole`` clocks or between them; return the mean cost of computations.

    Shape: ``factor`` [draws, nodes].
    """
    track, cost_j = _track(len(course.order)), 0.0
    entry = _entry(course, curves, weights, whole)
    for draw in range(len(factor)):
        cost_j += _forward(course, curves, weights, entry, track, factor[draw], latency_s, whole)
        seen.time_s[draw] = track.end_s.max()
        for node in range(len(course.order)):
            seen.most_late_s[node] = max(seen.most_late_s[node], abs(track.late_s[node]))
            seen.mean_late_s[node] += track.late_s[node] / len(factor)
    return cost_j / len(factor)
