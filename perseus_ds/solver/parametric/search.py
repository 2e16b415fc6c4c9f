"""How far the sink can come nearer before another path becomes critical: Dijkstra on the waits."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inlined, inner, number
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import FAR, NO_WAY_BACK, State


@inner
def advanced(state: State) -> int:
    """Bring the sink nearer until another path is critical; leave that path in ``path``, return how far.

    The last path bounds the search from the start: no shortest path is longer.
    """
    nodes = state.nodes
    nodes[SINK].label = _wait_along(state)
    nodes[SINK].step = -1
    met = _search(state)
    if nodes[SINK].step >= 0:
        state.tally[1] = _trace(state)
    return _shift(state, met)


@inner
def _wait_along(state: State) -> int:
    """Sum the waits of the last path; FAR if a step has no room left, or there is no path."""
    steps, path, depth = state.steps, state.path, state.tally[1]
    total = state.nodes[SINK].time - state.nodes[SOURCE].time
    for place in range(depth):
        gap = steps[path[place].step].gap
        if gap >= NO_WAY_BACK:
            return FAR
        total += gap
    return total if depth > 0 else FAR


@inner
def _search(state: State) -> int:
    """Label nodes with their distance from the source in waits, nearest first; return how many were met.

    The sink's label may hold a bound to begin with; no node that is as far as the sink is looked at.

    Cost: O(steps log steps) on the nodes nearer than the sink.
    Source: Dijkstra 1959.
    """
    nodes, steps, scratch = state.nodes, state.steps, state.scratch
    met, stack, keys, held = scratch.met, scratch.stack, scratch.keys, scratch.nodes
    nodes[SOURCE].label, met[0], stack[0] = 0, SOURCE, SOURCE
    bound = nodes[SINK].label
    count, waiting, size, near = number(1), number(1), number(0), number(0)
    while True:
        while waiting > 0:
            waiting -= 1
            here = nodes[stack[waiting]]
            base = near - here.time
            for at in range(here.first, here.end):
                step = steps[at]
                other = nodes[step.to]
                reach = base + other.time + step.gap
                if reach >= bound or reach >= other.label:
                    continue
                if other.label == FAR:
                    met[count] = step.to
                    count += 1
                other.label, other.step = reach, at
                if step.to == SINK:
                    bound = reach
                elif reach == near:
                    stack[waiting] = step.to
                    waiting += 1
                else:
                    push(keys, held, size, reach, step.to)
                    size += 1
        size = _up_to_date(state, size)
        if size == 0 or keys[0] >= bound:
            return count
        near, stack[0], waiting = keys[0], held[0], 1
        pop(keys, held, size)
        size -= 1


@inlined
def _up_to_date(state: State, size: int) -> int:
    """Drop the first entries of the heap whose nodes have come nearer since; return how many are left."""
    nodes, keys, held = state.nodes, state.scratch.keys, state.scratch.nodes
    while size > 0 and keys[0] > nodes[held[0]].label:
        pop(keys, held, size)
        size -= 1
    return size


@inner
def _trace(state: State) -> int:
    """Write the steps by which the sink was reached, last first; return how many."""
    nodes, steps, path = state.nodes, state.steps, state.path
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
    nodes, met = state.nodes, state.scratch.met
    shorter = nodes[SINK].label
    for place in range(count):
        node = nodes[met[place]]
        if node.label < shorter:
            node.time += shorter - node.label
        node.label = FAR
    nodes[SINK].label = FAR
    return int(shorter)
