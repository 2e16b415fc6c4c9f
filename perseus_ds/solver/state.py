"""What the sweep carries from one breakpoint to the next: event times, flow, rungs, and its scratch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.network import Network
from perseus_ds.solver.paths import earliest_starts
from perseus_ds.solver.problem import Indices, Ints
from perseus_ds.solver.whole import Whole

FAR = np.iinfo(np.int64).max
"""The label of a node that no search has met: it is compared with, never added to."""


class State(NamedTuple):
    """Event times in ticks, flow in units of price, each arc's rung (the first whose top is above its flow).

    Between two calls all of these hold on every arc: the window (``time`` of head less ``time`` of tail)
    is at least the length of the rung that one more unit would use, and, where there is flow, at most the
    length of the rung that the last unit uses. That is optimality for the iteration time at hand.
    """

    time: Ints
    flow: Ints
    rung: Indices
    label: Ints
    met: Indices
    keys: Ints
    nodes: Indices
    mark: Indices
    next: Indices
    path: Indices


def start_of(whole: Whole, network: Network) -> State:
    """No flow, and everything as early as it can be with all activities at their least cost."""
    nodes, arcs = len(network.first) - 1, len(network.tail)
    return State(
        time=_earliest(whole, network, nodes),
        flow=np.zeros(arcs, dtype=np.int64),
        rung=network.bottom.copy(),
        label=np.full(nodes, FAR),
        met=np.empty(nodes, dtype=np.int32),
        keys=np.empty(2 * arcs + 1, dtype=np.int64),
        nodes=np.empty(2 * arcs + 1, dtype=np.int32),
        mark=np.zeros(nodes, dtype=np.int32),
        next=np.zeros(nodes, dtype=np.int32),
        path=np.empty(nodes, dtype=np.int32),
    )


def _earliest(whole: Whole, network: Network, nodes: int) -> Ints:
    time = np.zeros(nodes, dtype=np.int64)
    duration = whole.slowest
    start = earliest_starts(whole.graph, whole.delay, duration)
    np.maximum.at(time, network.tail[: len(start)], start)
    np.maximum.at(time, network.head[: len(start)], start + duration)
    return time


@compiled
def last_rung(network: Network, state: State, arc: int) -> int:
    """Return the rung that the last unit of flow on ``arc`` uses."""
    rung = state.rung[arc]
    if rung > network.bottom[arc] and network.top[rung - 1] == state.flow[arc]:
        return int(rung - 1)
    return int(rung)


@compiled
def wait(network: Network, state: State, step: int) -> int:
    """How far one more unit is from being worth it: ``step`` is ``2 * arc`` ahead, ``2 * arc + 1`` back.

    Returns FAR where there is no unit to take back.
    """
    arc = step >> 1
    window = state.time[network.head[arc]] - state.time[network.tail[arc]]
    if step & 1 == 0:
        return int(window - network.length[state.rung[arc]])
    if state.flow[arc] == 0:
        return FAR
    return int(network.length[last_rung(network, state, arc)] - window)


@compiled
def room(network: Network, state: State, step: int) -> int:
    """How many units fit before the arc changes its rung."""
    arc = step >> 1
    if step & 1 == 0:
        return int(network.top[state.rung[arc]] - state.flow[arc])
    rung = last_rung(network, state, arc)
    below = network.top[rung - 1] if rung > network.bottom[arc] else 0
    return int(state.flow[arc] - below)


@compiled
def send(network: Network, state: State, step: int, units: int) -> None:
    """Move ``units`` over one step; at most what there is room for."""
    arc = step >> 1
    if step & 1 == 0:
        state.flow[arc] += units
        if state.flow[arc] == network.top[state.rung[arc]]:
            state.rung[arc] += 1
    else:
        state.rung[arc] = last_rung(network, state, arc)
        state.flow[arc] -= units


@compiled
def far_end(network: Network, step: int) -> int:
    """Return the node that a step leads to."""
    arc = step >> 1
    return int(network.head[arc] if step & 1 == 0 else network.tail[arc])
