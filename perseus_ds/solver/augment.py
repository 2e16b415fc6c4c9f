"""Flow along critical paths: depth-first passes that send all they find."""

from __future__ import annotations

from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.network import SINK, SOURCE, Network
from perseus_ds.solver.state import State, far_end, room, send, wait


@compiled
def augment(network: Network, state: State, stamp: int) -> int:
    """Send flow over steps without wait until a depth-first pass is exhausted; return the units sent.

    A node is entered once per pass unless a path through it reached the sink, so a pass is linear in the
    arcs plus the length of the paths it sends along; it may leave some flow to the next pass.
    """
    sent, depth, node = 0, 0, SOURCE
    _enter(network, state, node, stamp)
    while True:
        step = _next_step(network, state, node, stamp)
        if step >= 0:
            state.path[depth] = step
            depth += 1
            node = far_end(network, step)
            if node != SINK:
                _enter(network, state, node, stamp)
                continue
            units = _least_room(network, state, depth)
            sent += units
            depth = _send_along(network, state, depth, units)
        elif depth == 0:
            return sent
        else:
            depth -= 1
        node = far_end(network, state.path[depth] ^ 1)


@compiled
def _enter(network: Network, state: State, node: int, stamp: int) -> None:
    state.mark[node] = stamp
    state.next[node] = network.first[node]


@compiled
def _next_step(network: Network, state: State, node: int, stamp: int) -> int:
    """Return the next step without wait to a node not yet entered; below zero when there is none."""
    while state.next[node] < network.first[node + 1]:
        step = network.touching[state.next[node]]
        if state.mark[far_end(network, step)] != stamp and wait(network, state, step) == 0:
            return int(step)
        state.next[node] += 1
    return -1


@compiled
def _least_room(network: Network, state: State, depth: int) -> int:
    units = room(network, state, state.path[0])
    for place in range(1, depth):
        units = min(units, room(network, state, state.path[place]))
    return units


@compiled
def _send_along(network: Network, state: State, depth: int, units: int) -> int:
    """Send, reopen the nodes behind the first full step, return how far the path still stands."""
    stands = depth
    for place in range(depth - 1, -1, -1):
        step = state.path[place]
        if room(network, state, step) == units:
            stands = place
        send(network, state, step, units)
    for place in range(stands, depth - 1):
        state.mark[far_end(network, state.path[place])] = 0
    return stands
