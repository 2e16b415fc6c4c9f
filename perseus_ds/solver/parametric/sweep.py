"""The parametric sweep: from the least cost down to the least time, one breakpoint after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import inner, number, tiered
from perseus_ds.solver.parametric.augment import exhaust, send_along, trace, wait_along
from perseus_ds.solver.parametric.network import SINK, SOURCE, Network
from perseus_ds.solver.parametric.search import search, shift
from perseus_ds.solver.parametric.state import State
from perseus_ds.solver.problem import Ints


class Breakpoints(NamedTuple):
    """A stretch of breakpoints, time falling.

    ``price`` is what a unit of time costs between a breakpoint and the one before; ``event`` the time of
    every node, ``flow`` the flow on every arc just before the price rises.

    Units: ticks and units of price.
    Shape: ``total``, ``price`` [breakpoints]; ``event`` [.., nodes]; ``flow`` [.., arcs].
    """

    total: Ints
    price: Ints
    event: Ints
    flow: Ints


def room_for(count: int, network: Network) -> Breakpoints:
    """Allocate ``count`` breakpoints."""
    nodes, arcs = len(network.first) - 1, len(network.ahead)
    empty = [np.empty(shape, dtype=np.int64) for shape in (count, count, (count, nodes), (count, arcs))]
    return Breakpoints(*empty)


@tiered
def sweep(network: Network, state: State, least: int, found: Breakpoints) -> int:
    """Fill ``found`` with the next breakpoints; fewer than fit means that ``least`` was reached.

    Longer than ``least`` (the longest path of all activities at their fastest), every critical path has an
    arc that can still be shortened, so every pass sends a finite flow. A search that gains no time means
    that several paths are critical at once: a depth-first pass takes them all.

    Source: Phillips and Dessouky 1977; successive shortest paths as in Ahuja, Magnanti, Orlin 1993, 9.7.
    """
    count, tally = number(0), state.tally
    while count < len(found.total) and state.time[SINK] - state.time[SOURCE] > least:
        shorter = _advance(network, state)
        if shorter > 0:
            _record(state, found, count)
            count += 1
            if state.time[SINK] - state.time[SOURCE] > least:
                tally[1] += send_along(network, state, tally[2])
        else:
            tally[0] += 1
            tally[1] += exhaust(network, state, tally[0])
            tally[2] = 0
    return count


@inner
def _advance(network: Network, state: State) -> int:
    """Search and shift; leave the shortest path in ``path``."""
    scratch = state.scratch
    scratch.label[SINK] = wait_along(network, state, state.tally[2])
    scratch.reached_by[SINK] = -1
    met = search(
        network.first,
        network.to,
        state.time,
        state.gap,
        SOURCE,
        SINK,
        scratch.label,
        scratch.reached_by,
        scratch.met,
        scratch.stack,
        scratch.keys,
        scratch.nodes,
    )
    if scratch.reached_by[SINK] >= 0:
        state.tally[2] = trace(network.to, network.twin, scratch.reached_by, state.path)
    return shift(state.time, scratch.label, scratch.met, met, SINK)


@inner
def _record(state: State, found: Breakpoints, row: int) -> None:
    found.total[row] = state.time[SINK] - state.time[SOURCE]
    found.price[row] = state.tally[1]
    _copy(state.time, found.event, row)
    _copy(state.flow, found.flow, row)


@inner
def _copy(values: Ints, rows: Ints, row: int) -> None:
    for place in range(len(values)):  # a loop: an assignment of slices takes a second to compile
        rows[row, place] = values[place]
