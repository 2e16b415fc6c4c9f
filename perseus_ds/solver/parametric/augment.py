"""Flow along critical paths: the path that a search found, or all that a depth-first pass finds."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower
from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inner, number
from perseus_ds.solver.parametric.flow import room, send
from perseus_ds.solver.parametric.network import SINK, SOURCE, Network
from perseus_ds.solver.parametric.state import FAR, State
from perseus_ds.solver.problem import Indices, Ints


@inner
def trace(to: Indices, twin: Indices, reached_by: Indices, path: Indices) -> int:
    """Write the steps by which the sink was reached, last first; return how many."""
    node, depth = SINK, 0
    while node != SOURCE:
        path[depth] = reached_by[node]
        node = to[twin[path[depth]]]
        depth += 1
    return depth


@inner
def wait_along(network: Network, state: State, depth: int) -> int:
    """Sum the waits of the last path: no shortest path is longer. FAR if a step has no room left."""
    total = 0
    for place in range(depth):
        step = state.path[place]
        wait = state.time[network.to[step]] - state.time[network.to[network.twin[step]]] + state.gap[step]
        if wait >= FAR // 4 - total:
            return FAR
        total += wait
    return total if depth > 0 else FAR


@inner
def send_along(network: Network, state: State, depth: int) -> int:
    """Send what fits along the whole path; return the units sent."""
    arc, ahead, back, bottom = network.arc, network.ahead, network.back, network.bottom
    length, top, flow, rung, gap = network.length, network.top, state.flow, state.rung, state.gap
    path = state.path
    units = room(path[0], arc, ahead, bottom, top, flow, rung)
    for place in range(1, depth):
        units = min(units, room(path[place], arc, ahead, bottom, top, flow, rung))
    for place in range(depth):
        send(path[place], units, arc, ahead, back, bottom, length, top, flow, rung, gap)
    return units


@inner
def exhaust(network: Network, state: State, stamp: int) -> int:
    """Send flow over steps without wait until a depth-first pass finds no more; return the units sent.

    No step is looked at twice in one pass, so a pass is linear in the steps plus the length of the paths
    it sends along; it may leave some flow to the next pass.
    """
    first, to, twin, path = network.first, network.to, network.twin, state.path
    time, gap, mark, next_step = state.time, state.gap, state.mark, state.next
    sent, depth, node = number(0), number(0), number(SOURCE)
    mark[SOURCE], next_step[SOURCE] = stamp, first[SOURCE]
    while True:
        step = _open_step(first, to, time, gap, mark, next_step, node, stamp)
        if step >= 0:
            path[depth] = step
            depth += 1
            node = to[step]
            if node != SINK:
                if mark[node] != -stamp:
                    next_step[node] = first[node]
                mark[node] = stamp
                continue
            sent += send_along(network, state, depth)
            depth = _stands(to, twin, time, gap, mark, path, depth, stamp)
        elif depth == 0:
            return sent
        else:
            depth -= 1
        node = to[twin[path[depth]]]


@inner
def _open_step(
    first: Indices,
    to: Indices,
    time: Ints,
    gap: Ints,
    mark: Indices,
    next_step: Indices,
    node: int,
    stamp: int,
) -> int:
    """Return the next step without wait to a node not yet entered; below zero when there is none."""
    for step in range(next_step[node], first[node + 1]):
        if mark[to[step]] != stamp and time[to[step]] - time[node] + gap[step] == 0:
            next_step[node] = step
            return int(step)
    next_step[node] = first[node + 1]
    return -1


@inner
def _stands(
    to: Indices, twin: Indices, time: Ints, gap: Ints, mark: Indices, path: Indices, depth: int, stamp: int
) -> int:
    """Reopen the nodes behind the first step that has become a wait; return how many steps still stand."""
    stands = 0
    while stands < depth:
        step = path[stands]
        if time[to[step]] - time[to[twin[step]]] + gap[step] > 0:
            break
        stands += 1
    for place in range(stands, depth - 1):
        mark[to[path[place]]] = -stamp
    return stands
