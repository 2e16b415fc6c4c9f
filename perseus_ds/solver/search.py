"""How far the sink can come nearer before another path becomes critical: Dijkstra on the waits."""

from __future__ import annotations

from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.heap import pop, push
from perseus_ds.solver.network import SINK, SOURCE, Network
from perseus_ds.solver.state import FAR, State, far_end, wait


@compiled
def advance(network: Network, state: State) -> int:
    """Shift event times by one search from the source; return by how much the iteration got shorter.

    Labels are distances in waits. A node labelled less than the sink moves towards it by the difference,
    the others keep their place, so that the sink stays and the source moves: the cost is that of the
    nodes met. Zero means that a critical path still has room for flow.

    Cost: O(arcs log arcs), early ended.
    Source: Phillips and Dessouky 1977; Ahuja, Magnanti, Orlin 1993, section 9.7 (successive shortest paths).
    """
    met, size = 1, 1
    state.met[0], state.label[SOURCE] = SOURCE, 0
    state.keys[0], state.nodes[0] = 0, SOURCE
    while size > 0:
        near, node = state.keys[0], state.nodes[0]
        if near >= state.label[SINK]:
            break
        pop(state.keys, state.nodes, size)
        size -= 1
        if near > state.label[node]:
            continue
        for place in range(network.first[node], network.first[node + 1]):
            step = network.touching[place]
            gap = wait(network, state, step)
            if gap >= state.label[SINK] - near:
                continue
            other = far_end(network, step)
            if near + gap < state.label[other]:
                if state.label[other] == FAR:
                    state.met[met] = other
                    met += 1
                state.label[other] = near + gap
                push(state.keys, state.nodes, size, near + gap, other)
                size += 1
    return _shift(state, met)


@compiled
def _shift(state: State, met: int) -> int:
    """Move the nodes met by what their labels allow, and forget the labels."""
    shorter = state.label[SINK]
    for place in range(met):
        node = state.met[place]
        if state.label[node] < shorter:
            state.time[node] += shorter - state.label[node]
        state.label[node] = FAR
    return int(shorter)
