"""The frontier as its paper tells it, readable and slow: a minimum cut for every step down, by networkx.

Every activity is an arc from its start to its end, every precedence one from an end to a start. An arc is
tight where its events are no further apart than it lasts. To make the iteration shorter, the events behind a
cut through the tight arcs move earlier: activities across it are shortened, at the price of their next
segment, and those that cross it backwards may be lengthened again, which gives back that of their last one.

Source: Phillips and Dessouky 1977; lower bounds on an arc's flow as supplies, Ford and Fulkerson 1962.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np

from perseus_ds.solver import Problem

Curve = list[tuple[int, Fraction]]
"""Corners of a convex curve, in ticks and cost, the fastest first."""


def embedded_cuts(problem: Problem, curves: list[Curve], delays: list[int]) -> Iterator[tuple[int, Fraction]]:
    """Yield time and least cost at every cut, from the slowest useful iteration down to the shortest.

    ``curves`` are those of the problem's tables, and with ``delays`` in whole ticks.
    """
    own = [curves[table] for table in problem.table_of]
    arcs = [(("start", i), ("end", i), curve) for i, curve in enumerate(own)]
    pairs = zip(problem.before.tolist(), problem.after.tolist(), delays, strict=True)
    arcs += [(("end", i), ("start", j), [(delay, Fraction(0))]) for i, j, delay in pairs]
    arcs += [("source", ("start", i), [(0, Fraction(0))]) for i in range(len(own))]
    arcs += [(("end", i), "sink", [(0, Fraction(0))]) for i in range(len(own))]
    time = dict.fromkeys([node for tail, head, _ in arcs for node in (tail, head)], 0)
    order = nx.topological_sort(nx.DiGraph([(tail, head) for tail, head, _ in arcs]))
    for node in order:  # everything at its least cost, as early as it can be
        time[node] = max([time[tail] + curve[-1][0] for tail, head, curve in arcs if head == node], default=0)
    while True:
        yield time["sink"], sum((_cost(c, time[head] - time[tail]) for tail, head, c in arcs), Fraction(0))
        graph = nx.DiGraph()
        graph.add_nodes_from(time)
        for tail, head, curve in arcs:
            if time[head] - time[tail] <= curve[-1][0]:
                _embed(graph, tail, head, *_prices(curve, time[head] - time[tail]))
        try:
            _, (_, behind) = nx.minimum_cut(graph, "source", "sink")
        except nx.NetworkXUnbounded:  # some tight path has nothing left to shorten: T_min
            return
        step = min(
            _room(curve, time[head] - time[tail], shorter=head in behind)
            for tail, head, curve in arcs
            if (tail in behind) != (head in behind)
        )
        for node in behind:
            time[node] -= step


def _prices(curve: Curve, window: int) -> tuple[Fraction, Fraction | None]:
    """What a tick longer gives back, and what a tick shorter costs (None: it cannot be shorter)."""
    falls = [(slow, (high - low) / (slow - fast)) for (fast, high), (slow, low) in pairwise(curve)]
    longer = next((price for slow, price in falls if slow > window), Fraction(0))
    return longer, next((price for slow, price in falls if slow >= window), longer) if window > curve[0][
        0
    ] else None


def _embed(graph: nx.DiGraph, tail: object, head: object, least: Fraction, most: Fraction | None) -> None:
    """Add an arc that carries ``least`` or more: that much leaves at its tail and comes back at its head."""
    graph.add_edge(tail, head, **({} if most is None else {"capacity": most - least}))
    if least:
        for start, end in ((tail, "sink"), ("source", head)):
            more = graph.get_edge_data(start, end, {"capacity": 0})["capacity"] + least
            graph.add_edge(start, end, capacity=more)


def _room(curve: Curve, window: int, *, shorter: bool) -> float:
    """How far the ends of an arc may come nearer, or apart, until its price is another one."""
    corners = [length for length, _ in curve]
    if shorter:
        return window - max(corner for corner in corners if corner < window)
    return min((corner - window for corner in corners if corner > window), default=np.inf)


def _cost(curve: Curve, window: int) -> Fraction:
    for (fast, high), (slow, low) in pairwise(curve):
        if window <= slow:
            return high - (high - low) / (slow - fast) * (window - fast)
    return curve[-1][1]
