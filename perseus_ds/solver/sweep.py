"""The parametric sweep: from the least cost down to the least time, one breakpoint after the other."""
# ruff: noqa: C901, PLR0912 - compiled code: loops written out

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import LONGEST, SINK, SOURCE, Network, Whole, earliest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints

# A binary heap of (key, node), least key first, in two arrays that the caller owns.


@inner
def push(keys: Ints | Floats, nodes: Indices | Ints, size: int, key: float, node: int) -> None:
    """Add an entry to a heap of ``size`` entries."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place], nodes[place] = keys[parent], nodes[parent]
        place = parent
    keys[place], nodes[place] = key, node


@inner
def pop(keys: Ints | Floats, nodes: Indices | Ints, size: int) -> None:
    """Take the first entry out of a heap of ``size`` entries; read it before."""
    last = size - 1
    key, node = keys[last], nodes[last]
    place = 0
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], nodes[place] = keys[child], nodes[child]
        place = child
    keys[place], nodes[place] = key, node


# What the sweep carries from one breakpoint to the next: event times, flow, and what searches write on.

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
"""Counts in ``tally``: see ``State``."""
LINE, HUGE, LARGE = 64, 2**21, 2**20
"""Bytes that a processor reads at once; bytes of a huge page; records from which on huge pages pay."""


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
    Shape: ``nodes``, ``path``, ``met`` [nodes]; ``steps``, ``moves`` [steps]; ``arcs`` [arcs]; ``length``,
    ``top`` [rungs]; ``ties``, ``alike``, ``keys``, ``held`` [steps + 1], scratch arrays as ``met`` is.
    """

    nodes: Records
    steps: Records
    moves: Records
    arcs: Records
    length: Ints
    top: Ints
    path: Records
    met: Indices
    ties: Indices
    alike: Indices
    keys: Ints
    held: Indices
    tally: Ints


def start_of(whole: Whole, network: Network) -> State:
    """No flow, and everything as early as it can be with all activities at their least cost."""
    count, size = len(network.first) - 1, len(network.to) + 1
    nodes, steps, moves, arcs, path = _records(
        (count, NODE),
        (len(network.to), STEP),
        (len(network.to), MOVE),
        (len(network.arc) // 2, ARC),
        (count, PLACE),
    )
    start = earliest_starts(whole.graph, whole.delay, whole.slowest)
    np.maximum.at(nodes["time"], network.to[network.back[: len(start)]], start)
    np.maximum.at(nodes["time"], network.to[network.ahead[: len(start)]], start + whole.slowest)
    nodes["label"] = FAR
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
        met=np.empty(count, np.int32),
        ties=np.empty(size, np.int32),
        alike=np.empty(size, np.int32),
        keys=np.empty(size, np.int64),
        held=np.empty(size, np.int32),
        tally=np.zeros(PATHS + 1, np.int64),
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


# Levels: by how many steps without wait a node leads to the sink.


@inner
def measure_levels(state: State) -> bool:
    """Level nodes by the steps without wait that lead to the sink, fewest first; return if the source is met.

    Nodes that are farther than the source stay below the ground, as do those from which no such way leads.
    """
    state.tally[GROUND] = low = ground(state)
    state.nodes[SINK].level, state.met[0] = low + 1, SINK
    return _level(state, 1, 0)


@inner
def extend_levels(state: State) -> bool:
    """Level what the last search's ties lead from, and what leads there; levels that were measured hold.

    They hold where no way was left when they were measured: the search has moved no node that has one. Each
    step from there to a node that it moved waits longer now, so none is nearer than it was.
    """
    nodes, steps, size = state.nodes, state.steps, 0
    for place in range(state.tally[TIES]):
        step = steps[state.ties[place]]
        push(state.keys, state.held, size, nodes[step.to].level + 1, steps[step.twin].to)
        size += 1
    return _level(state, 0, size)


@inner
def _level(state: State, count: int, size: int) -> bool:
    """Level what leads to the first ``count`` nodes met, or to those in a heap of ``size`` by their level."""
    nodes, steps, low = state.nodes, state.steps, state.tally[GROUND]
    met, keys, held = state.met, state.keys, state.held
    at = 0
    while nodes[SOURCE].level <= low and at < count + size:
        while size > 0 and (at == count or keys[0] <= nodes[met[at]].level + 1):
            here = nodes[held[0]]
            if here.level <= low:
                here.level, here.step = keys[0], here.first
                met[count] = held[0]
                count += 1
            pop(keys, held, size)
            size -= 1
        here = nodes[met[at]]
        for back in range(here.first, here.end):
            step = steps[back]
            other = nodes[step.to]
            if other.level <= low and here.time - other.time + steps[step.twin].gap == 0:
                other.level, other.step = here.level + 1, other.first
                met[count] = step.to
                count += 1
        at += 1
    state.tally[HIGH] = max(state.tally[HIGH], nodes[met[count - 1]].level)
    return bool(nodes[SOURCE].level > low)


@inner
def ground(state: State) -> int:
    """Return what no node's level is above; begin anew where levels would outgrow their field."""
    if state.tally[HIGH] > HIGHEST - len(state.nodes):
        state.tally[HIGH] = 0
        for node in range(len(state.nodes)):
            state.nodes[node].level = 0
    return int(state.tally[HIGH])


# How far the sink can come nearer before another path becomes critical: Dijkstra on the waits.


@inner
def advance(state: State) -> int:
    """Bring the sink nearer until another path is critical; return how far.

    Where all nodes that lead to the sink without a wait are known, the search ends at them. What it leaves
    are the ties. Else it leaves the path in ``path``; the last path bounds it from the start, as no shortest
    path is longer.
    """
    nodes, tally = state.nodes, state.tally
    if tally[PATIENCE] > 0:
        met = _search(state, tally[GROUND], FAR)
    else:
        floor = ground(state)
        nodes[SINK].level = tally[HIGH] = floor + 1
        met = _search(state, floor, _wait_along(state))
        if tally[TIES] > 0:
            tally[DEPTH] = _trace(state)
    return _shift(state, met)


@inner
def _wait_along(state: State) -> int:
    """Sum the waits of the last path; FAR if a step has no room left, or there is no path."""
    steps, path, depth = state.steps, state.path, state.tally[DEPTH]
    total = state.nodes[SINK].time - state.nodes[SOURCE].time
    for place in range(depth):
        gap = steps[path[place].step].gap
        if gap >= NO_WAY_BACK:
            return FAR
        total += gap
    return total if depth > 0 else FAR


@inner
def _search(state: State, floor: int, bound: int) -> int:
    """Label nodes with their distance from the source in waits, nearest first; return how many were met.

    Nodes above the floor are as far as the sink, and are not entered. The steps that lead to the nearest of
    them are the ties. Nothing that is as far as the bound is looked at. Of nodes that are equally far those
    found last go first, those found first where ties are wanted: so large graphs are read faster.

    Cost: O(steps log steps) on the nodes nearer than the sink. Source: Dijkstra 1959.
    """
    nodes, steps = state.nodes, state.steps
    met, alike, keys, held = state.met, state.alike, state.keys, state.held
    nodes[SOURCE].label, met[0], alike[0] = 0, SOURCE, SOURCE
    count, waiting, size, near, ties = 1, 1, 0, 0, -1
    while True:
        at = 0
        while at < waiting:
            if state.tally[PATIENCE] > 0:
                here, at = nodes[alike[at]], at + 1
            else:
                here, waiting = nodes[alike[waiting - 1]], waiting - 1
            base = near - here.time
            for which in range(here.first, here.end):
                step = steps[which]
                other = nodes[step.to]
                reach = base + other.time + step.gap
                if reach > bound or reach >= other.label:
                    continue
                if other.level > floor:
                    if reach < bound:
                        ties = 0
                    if ties >= 0:  # below zero only the last path is as short
                        state.ties[ties] = which
                        ties += 1
                    bound = reach
                elif reach < bound:
                    if other.label == FAR:
                        met[count] = step.to
                        count += 1
                    other.label, other.step = reach, which
                    if reach == near:
                        alike[waiting] = step.to
                        waiting += 1
                    else:
                        push(keys, held, size, reach, step.to)
                        size += 1
        while size > 0 and keys[0] > nodes[held[0]].label:  # that node has come nearer since
            pop(keys, held, size)
            size -= 1
        if size == 0 or keys[0] >= bound:
            nodes[SINK].label, state.tally[TIES] = bound, max(ties, 0)
            return count
        near, alike[0], waiting = keys[0], held[0], 1
        pop(keys, held, size)
        size -= 1


@inner
def _trace(state: State) -> int:
    """Write the steps by which the first tie was reached, last first; return how many."""
    nodes, steps, path = state.nodes, state.steps, state.path
    nodes[SINK].step = state.ties[0]
    node, depth = SINK, 0
    while node != SOURCE:
        path[depth].step = nodes[node].step
        node = steps[steps[nodes[node].step].twin].to
        depth += 1
    return depth


@inner
def _shift(state: State, count: int) -> int:
    """Move the nodes met towards the sink by what their labels allow, forget the labels.

    A node moves by how much nearer than the sink it is. The sink stays and the source moves by the sink's
    label, which is returned: the iteration is shorter by that. No wait becomes negative.
    """
    nodes, met = state.nodes, state.met
    shorter = nodes[SINK].label
    for place in range(count):
        node = nodes[met[place]]
        if node.label < shorter:
            node.time += shorter - node.label
        node.label = FAR
    nodes[SINK].label = FAR
    return int(shorter)


# Flow along critical paths: the path that a search found, or a maximum flow over all of them.

FIRST, MORE, MOST = 1, 3, 12
"""Flows of one path in a row that are borne with: at first, more for each flow of several paths, at most."""


@inner
def send_along(state: State) -> int:
    """Send what fits along the whole path; return the units sent."""
    moves, path, depth = state.moves, state.path, state.tally[DEPTH]
    units = moves[path[0].step].room
    for place in range(1, depth):
        units = min(units, moves[path[place].step].room)
    for place in range(depth):
        _send(state, path[place].step, units)
    return int(units)


@inner
def exhaust(state: State) -> int:
    """Send flow over steps without wait until no path has room; return the units sent.

    The shortest paths come first, all of one length at once. So no path walks through a part of the graph
    from which the sink cannot be reached.

    What leads to the sink is known then: while it stays so, only what is new is levelled to begin with.

    Source: Dinic 1970; Ahuja, Magnanti, Orlin 1993, 7.5.
    """
    tally, sent = state.tally, 0
    is_known = tally[PATIENCE] > 0
    tally[PATHS] = 0
    leads = extend_levels(state) if is_known else measure_levels(state)
    while leads:
        sent += _block(state)
        leads = measure_levels(state)
    if is_known:
        lone = tally[PATHS] == 1
        tally[PATIENCE] = tally[PATIENCE] - 1 if lone else min(tally[PATIENCE] + MORE, MOST)
    else:
        tally[PATIENCE] = FIRST
    return sent


@inner
def _block(state: State) -> int:
    """Send flow over steps that lead one nearer to the sink, depth first; return the units sent.

    A node is left for good when its last step is. What was sent along a path is written to a step only when
    the path leaves that step. So a step costs one writing, however many paths in a row share it.
    """
    nodes, steps, moves, path = state.nodes, state.steps, state.moves, state.path
    sent, depth, node, most = 0, 0, SOURCE, BOUNDLESS
    while True:
        at = _nearer(state, node)
        if at >= 0:
            most = min(most, sent + moves[at].room)
            place = path[depth]
            place.before, place.most, place.step, place.node = sent, most, at, node
            depth += 1
            node = steps[at].to
            if node != SINK:
                continue
            sent = most
            state.tally[PATHS] += 1
            depth = _stands(state, depth, sent)
        elif depth == 0:
            return sent
        else:
            depth -= 1
            nodes[path[depth].node].step += 1
            _settle(state, depth, sent)
        node = path[depth].node
        most = path[depth - 1].most if depth > 0 else BOUNDLESS


@inner
def _nearer(state: State, node: int) -> int:
    """Return the node's next step without wait that leads one nearer to the sink; below zero if none does."""
    nodes, steps, here = state.nodes, state.steps, state.nodes[node]
    at, end, time, wanted = here.step, here.end, here.time, here.level - 1
    while at < end:
        other = nodes[steps[at].to]
        if other.level == wanted and other.time - time + steps[at].gap == 0:
            break
        at += 1
    here.step = at
    return at if at < end else -1


@inner
def _stands(state: State, depth: int, sent: int) -> int:
    """Leave all from the first step on that is full; return how many steps of the path still stand."""
    path = state.path
    stands = depth - 1
    _settle(state, stands, sent)
    while stands > 0 and path[stands - 1].most == sent:
        stands -= 1
        _settle(state, stands, sent)
    return stands


@inner
def _settle(state: State, depth: int, sent: int) -> None:
    """Write what was sent since a place was entered to its step."""
    place = state.path[depth]
    if sent > place.before:
        _send(state, place.step, sent - place.before)


@inner
def _send(state: State, which: int, units: int) -> None:
    """Move ``units`` over one step: one at least, since a step on a path has room, and at most its room."""
    move = state.moves[which]
    if units < move.room and move.is_within:  # the arc stays within its rung: no gap changes
        move.room -= units
        state.moves[state.steps[which].twin].room += units
    else:
        _climb(state, move.arc, units if state.arcs[move.arc].ahead == which else -units)


@inner
def _climb(state: State, which: int, units: int) -> None:
    """Change an arc's flow from or to the edge of a rung, and what its steps wait and have room for."""
    arc, top, length = state.arcs[which], state.top, state.length
    ahead, back = state.moves[arc.ahead], state.moves[arc.back]
    flow = (arc.low + back.room if back.is_within else arc.low) + units
    rung, bottom = arc.rung, arc.bottom
    if units < 0 and rung > bottom and not back.is_within:
        rung -= 1
    if flow == top[rung]:
        rung += 1
    low = top[rung - 1] if rung > bottom else 0
    last = rung - 1 if rung > bottom and flow == low else rung  # the rung of the last unit
    arc.rung, arc.low = rung, low
    ahead.is_within = back.is_within = 1 if flow > low else 0
    state.steps[arc.ahead].gap, ahead.room = -length[rung], min(top[rung] - flow, BOUNDLESS)
    state.steps[arc.back].gap = length[last] if flow > 0 else NO_WAY_BACK
    back.room = flow - (top[last - 1] if last > bottom else 0)


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


@partial(compiled, small=283_000, patience=3_000_000)  # most of it are breakpoints, which are not converted
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
    count, tally, nodes = 0, state.tally, state.nodes
    while count < len(found.total) and nodes[SINK].time - nodes[SOURCE].time > least:
        shorter = advance(state)
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
    nodes, arcs, moves = state.nodes, state.arcs, state.moves
    event, flow = found.event[row], found.flow[row]
    for node in range(len(nodes)):  # loops: an assignment of slices takes a second to compile
        event[node] = nodes[node].time
    for which in range(len(arcs)):
        arc = arcs[which]
        back = moves[arc.back]
        flow[which] = arc.low + back.room if back.is_within else arc.low
