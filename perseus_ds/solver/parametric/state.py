"""What the sweep carries from one breakpoint to the next: event times, flow, rungs, and its scratch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.parametric.network import Network
from perseus_ds.solver.paths import earliest_starts
from perseus_ds.solver.problem import Indices, Ints
from perseus_ds.solver.ticks import LONGEST
from perseus_ds.solver.whole import Whole

FAR = np.iinfo(np.int64).max
"""The label of a node that no search has met: it is compared with, never added to."""
NO_WAY_BACK = 2 * LONGEST
"""The gap of a step back where there is no flow: more than any two event times can make up for."""


class Scratch(NamedTuple):
    """What a search writes on."""

    label: Ints
    reached_by: Indices
    met: Indices
    stack: Indices
    keys: Ints
    nodes: Indices


class State(NamedTuple):
    """Event times, flow, and each arc's rung: the first whose top is above its flow.

    A step from ``v`` to ``w`` waits ``time[w] - time[v] + gap[step]``: ahead, the gap is the length, negated,
    of the rung that one more unit would use; back, the length of the rung that the last unit uses. Between
    two calls no wait is negative. That is optimality for the iteration time at hand.

    Units: ticks; units of price.
    Shape: ``time``, ``mark``, ``next`` [nodes]; ``gap`` [steps];
    ``flow``, ``rung`` [arcs]; ``tally``: passes made, flow sent, length of ``path``.
    """

    time: Ints
    gap: Ints
    flow: Ints
    rung: Indices
    scratch: Scratch
    mark: Indices
    next: Indices
    path: Indices
    tally: Ints


def start_of(whole: Whole, network: Network) -> State:
    """No flow, and everything as early as it can be with all activities at their least cost."""
    nodes, steps = len(network.first) - 1, len(network.to)
    gap = np.full(steps, NO_WAY_BACK)
    gap[network.ahead] = -network.length[network.bottom]
    return State(
        time=_earliest(whole, network, nodes),
        gap=gap,
        flow=np.zeros(steps // 2, dtype=np.int64),
        rung=network.bottom.copy(),
        scratch=scratch_for(network),
        mark=np.zeros(nodes, dtype=np.int32),
        next=np.zeros(nodes, dtype=np.int32),
        path=np.empty(nodes, dtype=np.int32),
        tally=np.zeros(3, dtype=np.int64),
    )


def scratch_for(network: Network) -> Scratch:
    """Allocate for one search at a time."""
    nodes, steps = len(network.first) - 1, len(network.to)
    return Scratch(
        label=np.full(nodes, FAR),
        reached_by=np.empty(nodes, dtype=np.int32),
        met=np.empty(nodes, dtype=np.int32),
        stack=np.empty(steps + 1, dtype=np.int32),
        keys=np.empty(steps + 1, dtype=np.int64),
        nodes=np.empty(steps + 1, dtype=np.int32),
    )


def _earliest(whole: Whole, network: Network, nodes: int) -> Ints:
    time = np.zeros(nodes, dtype=np.int64)
    duration = whole.slowest
    start = earliest_starts(whole.graph, whole.delay, duration, np.zeros(0, dtype=np.bool_), duration)
    np.maximum.at(time, network.to[network.back[: len(start)]], start)
    np.maximum.at(time, network.to[network.ahead[: len(start)]], start + duration)
    return time
