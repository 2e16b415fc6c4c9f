"""The problem in whole numbers: hulls of the option tables, longest paths, the network of events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.schedule.dag import Graph, cycle, pack, spans
from perseus_ds.solver.compiled import tiered
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Problem, pareto_front

# From measured points to a convex curve: the lower-left hull of one table of options.


@dataclass(frozen=True, slots=True, eq=False)
class Hull:
    """The options on a table's lower-left hull, fastest first, cost and price strictly falling.

    ``option`` are positions in the table.
    """

    option: Ints
    duration_s: Floats
    cost_j: Floats

    @property
    def price_w(self) -> Floats:
        """Cost saved per second of stretching, on every segment."""
        return -np.diff(self.cost_j) / np.diff(self.duration_s)

    def cost_at(self, duration_s: Floats) -> Floats:
        """Interpolate the convex curve; a duration outside it costs what the nearer end costs."""
        return np.interp(duration_s, self.duration_s, self.cost_j)


def hull_of(table: OptionTable) -> Hull:
    """Keep the options that some price of time makes best.

    Cost: linear after sorting.
    Source: Andrew 1979, the monotone chain.
    """
    time, cost = table.duration_s, table.cost_j
    kept: list[int] = []
    for last in pareto_front(time, cost).tolist():
        while len(kept) > 1:
            first, middle = kept[-2:]
            rise = (cost[first] - cost[middle]) * (time[last] - time[middle])
            if rise > (cost[middle] - cost[last]) * (time[middle] - time[first]):  # the price falls
                break
            kept.pop()
        kept.append(last)
    return Hull(np.array(kept, dtype=np.int64), time[kept], cost[kept])


# Longest paths through the precedence graph, in whole ticks.


def graph_of(problem: Problem) -> Graph:
    """Pack the precedences and order the activities.

    Raises:
        SolverError: some activities wait for each other; the message walks around one cycle.
    Cost: linear, after sorting the precedences.
    """
    graph = pack(len(problem), problem.before, problem.after)
    if len(graph.order) < len(problem):
        walk = " -> ".join(map(str, cycle(graph)))
        raise SolverError(f"activities wait for each other: {walk}", hint="remove one of these precedences")
    return graph


@tiered
def earliest_starts(graph: Graph, delay: Ints, duration: Ints) -> Ints:
    """Return when each activity starts if nothing waits longer than it must."""
    start = np.zeros(len(duration), dtype=np.int64)
    for activity in graph.order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            ready = start[before] + duration[before] + delay[graph.before_arc[row]]
            start[activity] = max(start[activity], ready)
    return start


@tiered
def latest_starts(graph: Graph, delay: Ints, duration: Ints, end: int) -> Ints:
    """Return when each activity must start for all to be over by ``end``."""
    start = np.empty(len(duration), dtype=np.int64)
    for position in range(len(duration) - 1, -1, -1):
        activity = graph.order[position]
        start[activity] = end - duration[activity]
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            due = start[graph.after[row]] - delay[graph.after_arc[row]]
            start[activity] = min(start[activity], due - duration[activity])
    return start


def longest_seconds(problem: Problem, graph: Graph, duration_s: Floats) -> Floats:
    """Length of the longest path in seconds, summed in floats and apart from the solver's whole numbers.

    Shape: ``duration_s`` [plans, activities]; returns [plans].
    """
    return np.asarray(spans(graph, problem.delay_s.tolist(), duration_s.T)[1].max(axis=0))


# The problem in whole numbers: ticks for time, and each table's hull as rungs that a rising price climbs.
#
# Units are decimal, as fine as sums along a path leave room for.

LONGEST = 2**61
"""Largest sum that may occur: one bit below int64, so that the difference of two such sums fits."""
LARGEST = 10**15
"""Largest single number: below 2**53, so that a measured decimal becomes its whole number exactly."""
SMALLEST = 1000
"""Fewest units that a positive number may be rounded to: a thousandth of it is the worst error."""
DIGITS = 290
"""Largest power of ten, up or down, that a float can hold with room to multiply."""
UNBOUNDED = np.iinfo(np.int64).max
"""Room on a rung that no flow fills: no sum is ever formed with it, it only loses comparisons."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole units per second (or watt): ``10 ** digits``."""

    digits: int

    def whole(self, values: Floats | float) -> Ints:
        """Round to the nearest unit."""
        up, down = (10.0 ** max(digits, 0) for digits in (self.digits, -self.digits))
        return np.rint(np.asarray(values) * up / down).astype(np.int64)

    def real(self, count: Ints | int) -> Floats:
        """Return to seconds (or watts)."""
        up, down = (10.0 ** max(digits, 0) for digits in (self.digits, -self.digits))
        return np.asarray(np.asarray(count, dtype=np.int64) / up * down)


def unit_for(what: str, values: Floats, *, total: float) -> Unit:
    """Choose the finest decimal unit in which every value and their largest possible sum fit.

    Raises:
        SolverError: the values span so much that the small ones would vanish.
    """
    positive = values[values > 0.0]
    if not len(positive):
        return Unit(0)
    largest, smallest = float(positive.max()), float(positive.min())
    room = min(math.log10(LARGEST / largest), math.log10(LONGEST) - math.log10(max(total, largest)))
    digits = math.floor(room)
    if abs(digits) > DIGITS or smallest < SMALLEST * 10.0**-digits:
        raise SolverError(
            f"{what} from {smallest:.3g} to {largest:.3g} with a sum of up to {total:.3g} overflow the"
            f" integer scale: the limit is a sum of {LONGEST / SMALLEST:.1e} times the smallest",
            hint="leave out what is too small to matter",
        )
    return Unit(digits)


class Rungs(NamedTuple):
    """All hulls, one behind the other, slowest point first.

    A unit of flow through an activity is a unit of price that its duration is worth. Up to ``top[r]`` of
    it the activity stays at rung ``r`` and lasts ``length[r]`` ticks; the fastest rung has no top.

    Shape: ``first`` [tables + 1]; ``length``, ``top`` [rungs].
    """

    first: Indices
    length: Ints
    top: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A problem, ordered and in whole numbers.

    Shape: ``delay`` [precedences]; ``slowest``, ``fastest`` [activities], both in ticks.
    """

    problem: Problem
    graph: Graph
    hulls: tuple[Hull, ...]
    tick: Unit
    price: Unit
    rungs: Rungs
    delay: Ints

    @property
    def slowest(self) -> Ints:
        """Ticks of every activity at its least cost."""
        return self.rungs.length[self.rungs.first[:-1]][self.problem.table_of]

    @property
    def fastest(self) -> Ints:
        """Ticks of every activity at its shortest duration."""
        return self.rungs.length[self.rungs.first[1:] - 1][self.problem.table_of]

    def longest(self, duration: Ints) -> int:
        return int((earliest_starts(self.graph, self.delay, duration) + duration).max())

    def within(self, time_s: float) -> int:
        """Whole ticks that do not exceed a time; at T_min all of them, finer than seconds can state."""
        wanted = int(self.tick.whole(time_s))
        wanted -= int(float(self.tick.real(wanted)) > time_s)
        return max(wanted, self.longest(self.fastest))


def whole_of(problem: Problem) -> Whole:
    """Choose units and translate.

    Raises:
        SolverError: a cycle, or numbers that do not fit.
    """
    graph, table_of = graph_of(problem), problem.table_of
    hulls = tuple(hull_of(table) for table in problem.tables)
    slowest_s = np.array([table.duration_s.max() for table in problem.tables])
    total_s = float(slowest_s[table_of].sum() + problem.delay_s.sum())  # no path is longer than all in turn
    every_s = np.concatenate([*(table.duration_s for table in problem.tables), problem.delay_s])
    tick = unit_for("durations in seconds", every_s, total=total_s)
    prices_w = [hull.price_w for hull in hulls]
    highest_w = np.array([own_w[0] if len(own_w) else 0.0 for own_w in prices_w])
    total_w = float(highest_w[table_of].sum())  # no cut carries more than all at their highest
    price = unit_for("prices of time in watts", highest_w, total=total_w)
    return Whole(problem, graph, hulls, tick, price, _rungs(hulls, tick, price), tick.whole(problem.delay_s))


def _rungs(hulls: Sequence[Hull], tick: Unit, price: Unit) -> Rungs:
    """Lengths and tops of all hulls' rungs; one that in whole numbers holds nothing is left out."""
    first = np.concatenate(([0], np.cumsum([len(hull.option) for hull in hulls])))
    length = tick.whole(np.concatenate([hull.duration_s[::-1] for hull in hulls]))
    top = np.full(first[-1], UNBOUNDED)
    below = np.ones(first[-1], np.bool_)
    below[first[1:] - 1] = False  # the fastest rung of each has no top
    top[below] = np.maximum(price.whole(np.concatenate([hull.price_w[::-1] for hull in hulls])), 1)
    before = np.concatenate(([0], top[:-1]))
    before[first[:-1]] = 0
    holds = top > before
    kept = np.concatenate(([0], np.cumsum(holds)))[first]
    return Rungs(kept.astype(np.int32), length[holds], top[holds])


SOURCE, SINK = 0, 1


class Network(NamedTuple):
    """Arcs with rungs, and for every node the steps that leave it.

    An arc can be walked ahead and back: two steps, each the other's ``twin``. The steps from node ``v``
    are ``first[v]`` to ``first[v + 1]``; each leads to node ``to``. The first arcs are the activities, in
    the problem's order, the others precedences; ``ahead`` and ``back`` are an arc's steps, ``bottom`` its
    slowest rung.

    Shape: ``first`` [nodes + 1]; ``to``, ``twin``, ``arc`` [steps]; ``ahead``, ``back``, ``bottom`` [arcs];
    ``length``, ``top`` [rungs].
    """

    first: Indices
    to: Indices
    twin: Indices
    arc: Indices
    ahead: Indices
    back: Indices
    bottom: Indices
    length: Ints
    top: Ints


def network_of(whole: Whole) -> tuple[Network, Indices]:
    """Build the network; also show which precedence each arc behind the activities stands for.

    Cost: linear, after sorting.
    """
    start, end, crossing = _events(whole)
    problem, rungs = whole.problem, whole.rungs
    tail = np.concatenate((start, end[problem.before[crossing]]))
    head = np.concatenate((end, start[problem.after[crossing]]))
    delays, which = np.unique(whole.delay[crossing], return_inverse=True)
    network = Network(
        *_steps(tail, head),
        bottom=np.concatenate((rungs.first[problem.table_of], len(rungs.length) + which)).astype(np.int32),
        length=np.concatenate((rungs.length, delays)),
        top=np.concatenate((rungs.top, np.full(len(delays), UNBOUNDED))),
    )
    return network, crossing


def _events(whole: Whole) -> tuple[Indices, Indices, Indices]:
    """Number the events side by side; name the precedences that still join two different ones.

    An activity with one follower may as well end when that one starts. One with a single predecessor may as
    well start when that one ends. All that nothing precedes start at the source, all that nothing follows end
    at the sink.

    Passes walk along what one machine does: two to three times faster where that is one stretch of memory.
    """
    problem = whole.problem
    count = len(problem)
    out, into = np.bincount(problem.before, minlength=count), np.bincount(problem.after, minlength=count)
    prompt = whole.delay == 0
    only_follower = prompt & (out[problem.before] == 1)
    only_before = prompt & (into[problem.after] == 1) & ~only_follower
    start, end = np.arange(count) + 2, np.arange(count) + 2 + count
    start[into == 0], end[out == 0] = SOURCE, SINK
    end[problem.before[only_follower]] = start[problem.after[only_follower]]
    start[problem.after[only_before]] = end[problem.before[only_before]]
    events = np.concatenate(([SOURCE, SINK], np.column_stack((start, end)).ravel()))
    _, first, which = np.unique(events, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first))
    crossing = np.flatnonzero(~(only_follower | only_before))
    return number[which[2::2]], number[which[3::2]], crossing.astype(np.int32)


def _steps(tail: Indices, head: Indices) -> tuple[Indices, Indices, Indices, Indices, Indices, Indices]:
    """Sort both steps of every arc by the node they leave, those ahead first: they lead to the sink."""
    leaves, leads = np.column_stack((tail, head)).ravel(), np.column_stack((head, tail)).ravel()
    order = np.lexsort((np.arange(len(leaves)) & 1, leaves))
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order))
    first = np.concatenate(([0], np.cumsum(np.bincount(leaves)))).astype(np.int32)
    to, arc = leads[order].astype(np.int32), (order >> 1).astype(np.int32)
    return first, to, place[order ^ 1], arc, place[0::2].copy(), place[1::2].copy()
