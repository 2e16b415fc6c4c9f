"""The relaxed optimum at one time, made into what a beam follows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices, places_within
from perseus_ds.solver.frontier import Frontier, activity_flow, precedence_flow
from perseus_ds.solver.network import latest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints

BAND = 3
"""How many options faster or slower than the relaxed duration are tried."""


class Guide(NamedTuple):
    """The relaxed optimum at one time, as a beam reads it.

    ``order``: activities by relaxed start; ``start``, ``end``: relaxed starts and ends. ``due``: latest ends
    from which the rest can keep the wanted time at its fastest. ``price``: the flow, cost per tick of
    duration; ``toll``: cost per tick of waiting. ``low`` to ``high``: the places that are tried.

    Units: ticks; cost per tick.
    Shape: ``toll`` [precedences]; the others [activities].
    """

    order: Indices
    start: Ints
    end: Ints
    due: Ints
    price: Floats
    toll: Floats
    low: Indices
    high: Indices


def guide_at(frontier: Frontier, choices: Choices, time_s: float, wanted: int) -> Guide:
    """Interpolate event times between snapshots; take prices from the faster one.

    ``wanted`` is the time in ticks that no plan may exceed.

    Cost: linear, after sorting.
    """
    whole = frontier.whole
    start, end = _events(frontier, time_s)
    place = places_within(choices, end - start)
    fastest = choices.length[choices.first]
    due = latest_starts(whole.graph, whole.delay, fastest, wanted) + fastest
    left = frontier.bracket(time_s)[0]
    per_tick = float(whole.tick.real(np.array(1)))
    return Guide(
        order=_by_start(whole.graph.order, start),
        start=start,
        end=end,
        due=due,
        price=activity_flow(frontier, left) * per_tick,
        toll=precedence_flow(frontier, left) * per_tick,
        low=np.maximum(choices.first, place - BAND),
        high=np.minimum(choices.last, place + 1 + BAND),
    )


def _events(frontier: Frontier, time_s: float) -> tuple[Ints, Ints]:
    whole, network, count = frontier.whole, frontier.network, len(frontier.whole.problem)
    left, right, share = frontier.bracket(time_s)
    low, high = (frontier.event[at] - frontier.event[at][0] for at in (left, right))
    event = low + ((high - low) * share).astype(np.int64)
    start = event[network.to[network.back[:count]]]
    window = event[network.to[network.ahead[:count]]] - start
    return start, start + np.clip(window, whole.fastest, whole.slowest)


def _by_start(order: Indices, start: Ints) -> Indices:
    """Sort activities by start; of those that start together, what goes before comes first."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.lexsort((rank, start)).astype(np.int32)
