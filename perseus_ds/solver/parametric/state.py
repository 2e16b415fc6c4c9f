"""What the sweep carries from one breakpoint to the next: event times, flow, and what searches write on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.parametric.network import Network
from perseus_ds.solver.paths import earliest_starts
from perseus_ds.solver.problem import Indices, Ints
from perseus_ds.solver.whole import LONGEST, Whole

Records = NDArray[Any]
"""A vector of records, whose fields are attributes: what a step needs lies side by side in memory."""
FAR = np.iinfo(np.int64).max
"""The label of a node that no search has met: it is compared with, never added to."""
NO_WAY_BACK = 2 * LONGEST
"""The gap of a step back where there is no flow: more than any two event times can make up for."""
BOUNDLESS = 2 * LONGEST
"""Room that no flow fills: more than all prices together."""
HIGHEST = 2**31 - 2
"""The highest level that a node can have."""
NODE = np.dtype(
    [("time", "i8"), ("label", "i8"), ("first", "i4"), ("end", "i4"), ("level", "i4"), ("step", "i4")]
)
STEP = np.dtype([("gap", "i8"), ("to", "i4"), ("twin", "i4")])
MOVE = np.dtype([("room", "i8"), ("arc", "i4"), ("is_within", "i4")])
ARC = np.dtype([("low", "i8"), ("rung", "i4"), ("bottom", "i4"), ("ahead", "i4"), ("back", "i4")])
PLACE = np.dtype([("before", "i8"), ("most", "i8"), ("step", "i4"), ("node", "i4")])
SENT, DEPTH, PATIENCE, HIGH, GROUND, TIES, PATHS = range(7)
"""What ``tally`` counts: see ``State``."""
LINE, HUGE, LARGE = 64, 2**21, 2**20
"""Bytes that a processor reads at once; bytes of a huge page; records from which on huge pages pay."""


class Scratch(NamedTuple):
    """What a search writes on, beside the nodes.

    Shape: ``met`` [nodes]; the others [steps + 1].
    """

    met: Indices
    ties: Indices
    alike: Indices
    keys: Ints
    nodes: Indices


class State(NamedTuple):
    """Event times, flow, and each arc's rung: the first whose top is above its flow.

    A node's steps are ``first`` to ``end``. A step from ``v`` to ``w`` waits ``time of w - time of v + gap``.
    Ahead, the gap is the length, negated, of the rung that one more unit would use. Back, it is the length of
    the rung that the last unit uses. Between two calls no wait is negative. That is optimality for the
    iteration time at hand. ``room`` is what may flow over a step before its gap changes. ``low`` is the top
    of the rung below an arc's: its flow, but for the room back where the flow ``is_within`` its rung.

    A search leaves at a node the ``step`` by which it was reached, a maximum flow the next one to try.
    ``level`` is how many steps away the sink was when it was last measured, above the ground of that time.
    An earlier measuring left lower ones, which are never cleared. ``ties`` are the steps that become critical
    where the last search ended: from nodes that it met to some that it did not enter.

    A place of the path is a step, the ``node`` that it leaves, and the flow sent ``before`` it was entered.
    ``most`` is how much may be sent along all places up to it.

    ``tally`` has the flow ``SENT``, the ``DEPTH`` of ``path``, how many ``TIES`` there are, and ``PATHS`` of
    the last maximum flow. ``HIGH`` is the highest level, ``GROUND`` the last measuring's ground. While
    ``PATIENCE`` is above zero all nodes that lead to the sink are known; flows of one path use it up.

    Units: ticks; units of price.
    Shape: ``nodes``, ``path`` [nodes]; ``steps``, ``moves`` [steps]; ``arcs`` [arcs]; ``length``, ``top``
    [rungs].
    """

    nodes: Records
    steps: Records
    moves: Records
    arcs: Records
    length: Ints
    top: Ints
    path: Records
    scratch: Scratch
    tally: Ints


def start_of(whole: Whole, network: Network) -> State:
    """No flow, and everything as early as it can be with all activities at their least cost."""
    count = len(network.first) - 1
    nodes, steps, moves, arcs, path = _records(
        (count, NODE),
        (len(network.to), STEP),
        (len(network.to), MOVE),
        (len(network.arc) // 2, ARC),
        (count, PLACE),
    )
    nodes["time"], nodes["label"] = _earliest(whole, network, count), FAR
    nodes["first"], nodes["end"] = network.first[:-1], network.first[1:]
    arcs["ahead"], arcs["back"], arcs["bottom"] = network.ahead, network.back, network.bottom
    arcs["rung"] = arcs["bottom"]
    steps["to"], steps["twin"], moves["arc"] = network.to, network.twin, network.arc
    steps["gap"] = NO_WAY_BACK
    steps["gap"][arcs["ahead"]] = -network.length[arcs["bottom"]]
    moves["room"][arcs["ahead"]] = np.minimum(network.top[arcs["bottom"]], BOUNDLESS)
    return State(
        nodes,
        steps,
        moves,
        arcs,
        network.length,
        network.top,
        path,
        _scratch(count, len(steps)),
        np.zeros(PATHS + 1, np.int64),
    )


def _records(*wanted: tuple[int, np.dtype[Any]]) -> list[Records]:
    """Vectors of records in one stretch of memory; no record lies on more lines than it must.

    From 4 MiB on numpy asks the system for huge pages. Searches jump between all machines: of small pages
    the processor would not find most without looking them up.
    """
    sizes = [-(-count * kind.itemsize // LINE) * LINE for count, kind in wanted]
    total, page = sum(sizes), LINE
    if total >= LARGE:
        total, page = max(total, 2 * HUGE), HUGE
    stretch = np.zeros(total + page, np.uint8)
    ends = np.cumsum(sizes) + -stretch.ctypes.data % page
    return [
        stretch[end - size :][: count * kind.itemsize].view(kind)
        for (count, kind), size, end in zip(wanted, sizes, ends.tolist(), strict=True)
    ]


def _scratch(nodes: int, steps: int) -> Scratch:
    return Scratch(
        met=np.empty(nodes, dtype=np.int32),
        ties=np.empty(steps + 1, dtype=np.int32),
        alike=np.empty(steps + 1, dtype=np.int32),
        keys=np.empty(steps + 1, dtype=np.int64),
        nodes=np.empty(steps + 1, dtype=np.int32),
    )


def _earliest(whole: Whole, network: Network, nodes: int) -> Ints:
    time = np.zeros(nodes, dtype=np.int64)
    duration = whole.slowest
    start = earliest_starts(whole.graph, whole.delay, duration)
    np.maximum.at(time, network.to[network.back[: len(start)]], start)
    np.maximum.at(time, network.to[network.ahead[: len(start)]], start + duration)
    return time
