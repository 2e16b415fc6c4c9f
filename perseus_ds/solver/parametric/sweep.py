"""The parametric sweep: from the least cost down to the least time, one breakpoint after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import inner, number, tiered
from perseus_ds.solver.parametric.augment import exhaust, flow_of, send_along
from perseus_ds.solver.parametric.network import SINK, SOURCE, Network
from perseus_ds.solver.parametric.search import advanced
from perseus_ds.solver.parametric.state import DEPTH, PATIENCE, SENT, State
from perseus_ds.solver.problem import Ints


class Breakpoints(NamedTuple):
    """A stretch of breakpoints, time falling.

    ``price`` is what a unit of time costs between a breakpoint and the one before. ``event`` has the time of
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
def sweep(state: State, least: int, found: Breakpoints, first: int, stride: int) -> int:
    """Fill ``found`` with the next breakpoints; fewer than fit means that ``least`` was reached.

    The first of them is number ``first``. Those whose number ``stride`` divides have a snapshot, and the last
    has one.

    Above ``least`` (the longest path of all activities at their fastest), every critical path has an arc that
    can still be shortened. So every path has finite room. A search that gains no time means that several
    paths are critical at once: a maximum flow takes them all. It leaves what leads to the sink known. While
    that is so, every breakpoint takes one, and the search for the next ends where these nodes begin.

    Source: Phillips and Dessouky 1977; successive shortest paths as in Ahuja, Magnanti, Orlin 1993, 9.7.
    """
    count, tally, nodes = number(0), state.tally, state.nodes
    while count < len(found.total) and nodes[SINK].time - nodes[SOURCE].time > least:
        shorter = advanced(state)
        is_known = tally[PATIENCE] > 0
        if shorter > 0:
            found.total[count], found.price[count] = nodes[SINK].time - nodes[SOURCE].time, tally[SENT]
            is_end = found.total[count] <= least
            if is_end or count + 1 == len(found.total) or (first + count) % stride == 0:
                _record(state, found, count)
            count += 1
            if is_end:
                break
            if not is_known:
                tally[SENT] += send_along(state)
        if shorter == 0 or is_known:
            tally[SENT] += exhaust(state)
            tally[DEPTH] = 0
    return count


@inner
def _record(state: State, found: Breakpoints, row: int) -> None:
    nodes, arcs = state.nodes, state.arcs  # loops: an assignment of slices takes a second to compile
    for node in range(len(nodes)):
        found.event[row, node] = nodes[node].time
    for arc in range(len(arcs)):
        found.flow[row, arc] = flow_of(state, arc)
