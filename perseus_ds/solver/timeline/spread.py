"""One unit of flow over all paths of a graph, each by the exponential of its length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiled import inner
from perseus_ds.solver.network import Graph
from perseus_ds.solver.problem import Floats, Ints


class Spread(NamedTuple):
    """What flows through activities and over precedences, and the logarithm of all paths' weight up to each.

    Shape: ``upto``, ``through`` [activities]; ``over`` [precedences].
    """

    upto: Floats
    through: Floats
    over: Floats


@inner
def spread_out(graph: Graph, delay: Ints, duration: Floats, sharp: float, found: Spread) -> None:
    """Fill ``found``: forward, then backward. ``sharp`` is how much more a tick longer weighs."""
    total = _forward(graph, delay, duration, sharp, found.upto)
    upto, through, over = found.upto, found.through, found.over
    for at in range(len(duration) - 1, -1, -1):  # what flows on came by the arcs, in their shares
        activity = graph.order[at]
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            through[activity] = np.exp(upto[activity] - total)
        else:
            through[activity] = 0.0
            for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
                through[activity] += over[graph.after_arc[row]]
        reached = upto[activity] - sharp * duration[activity]
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            arc = graph.before_arc[row]
            over[arc] = through[activity] * np.exp(upto[graph.before[row]] + sharp * delay[arc] - reached)


@inner
def _forward(graph: Graph, delay: Ints, duration: Floats, sharp: float, upto: Floats) -> float:
    """Fill ``upto``; return the logarithm of the weight of all paths."""
    count, total, top = len(duration), 0.0, -np.inf
    for at in range(count):
        activity = graph.order[at]
        first, last = graph.first_before[activity], graph.first_before[activity + 1]
        most = 0.0 if first == last else -np.inf
        for row in range(first, last):
            most = max(most, upto[graph.before[row]] + sharp * delay[graph.before_arc[row]])
        summed = 1.0 if first == last else 0.0
        for row in range(first, last):
            summed += np.exp(upto[graph.before[row]] + sharp * delay[graph.before_arc[row]] - most)
        upto[activity] = most + np.log(summed) + sharp * duration[activity]
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            top = max(top, upto[activity])
    for activity in range(count):
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            total += np.exp(upto[activity] - top)
    return float(top + np.log(total))
