"""The parametric sweep: from the least cost down to the least time, one breakpoint after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.augment import augment
from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.network import SINK, SOURCE, Network
from perseus_ds.solver.problem import Ints
from perseus_ds.solver.search import advance
from perseus_ds.solver.state import State


class Breakpoints(NamedTuple):
    """A stretch of breakpoints, time falling.

    ``price`` is what a unit of time costs between a breakpoint and the one before; ``window`` the distance
    of each activity's events, ``flow`` the flow on every arc just before the price rises.

    Units: ticks and units of price.
    Shape: ``time``, ``price`` [breakpoints]; ``window`` [.., activities]; ``flow`` [.., arcs].
    """

    time: Ints
    price: Ints
    window: Ints
    flow: Ints


def room_for(count: int, *, activities: int, arcs: int) -> Breakpoints:
    """Allocate ``count`` breakpoints."""
    empty = [np.empty(shape, dtype=np.int64) for shape in (count, count, (count, activities), (count, arcs))]
    return Breakpoints(*empty)


@compiled
def sweep(network: Network, state: State, least: int, tally: Ints, found: Breakpoints) -> int:
    """Fill ``found`` with the next breakpoints; fewer than fit means that ``least`` was reached.

    ``tally`` carries the passes made and the flow sent from one call to the next. Longer than ``least``
    (the longest path of all activities at their fastest), every critical path has an arc that can still
    be shortened, so every pass sends a finite flow.
    """
    count = 0
    while count < len(found.time) and state.time[SINK] - state.time[SOURCE] > least:
        shorter = advance(network, state)
        if shorter == 0:
            tally[0] += 1
            tally[1] += augment(network, state, tally[0])
        else:
            _record(network, state, tally[1], found, count)
            count += 1
    return count


@compiled
def _record(network: Network, state: State, price: int, found: Breakpoints, row: int) -> None:
    found.time[row] = state.time[SINK] - state.time[SOURCE]
    found.price[row] = price
    for arc in range(found.window.shape[1]):
        found.window[row, arc] = state.time[network.head[arc]] - state.time[network.tail[arc]]
    found.flow[row] = state.flow
