"""How far the sink can come nearer before another path becomes critical: Dijkstra on the waits."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inlined, inner, number
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.parametric.levels import ground
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import DEPTH, FAR, GROUND, HIGH, NO_WAY_BACK, PATIENCE, TIES, State


@inner
def advanced(state: State) -> int:
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
    nodes, steps, scratch = state.nodes, state.steps, state.scratch
    met, alike, keys, held = scratch.met, scratch.alike, scratch.keys, scratch.nodes
    nodes[SOURCE].label, met[0], alike[0] = 0, SOURCE, SOURCE
    count, waiting, size, near, ties = number(1), number(1), number(0), number(0), number(-1)
    while True:
        at = number(0)
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
                    ties = _tied(state, which, ties, reach < bound)
                    bound = reach
                elif reach < bound:
                    count = _labelled(state, which, reach, count)
                    if reach == near:
                        alike[waiting] = step.to
                        waiting += 1
                    else:
                        push(keys, held, size, reach, step.to)
                        size += 1
        size = _up_to_date(state, size)
        if size == 0 or keys[0] >= bound:
            nodes[SINK].label, state.tally[TIES] = bound, max(ties, 0)
            return count
        near, alike[0], waiting = keys[0], held[0], 1
        pop(keys, held, size)
        size -= 1


@inlined
def _tied(state: State, which: int, ties: int, is_nearer: bool) -> int:  # noqa: FBT001
    """Add a step to the ties; return how many there are, below zero while only the last path is as short."""
    if is_nearer:
        ties = 0
    if ties < 0:
        return ties
    state.scratch.ties[ties] = which
    return ties + 1


@inlined
def _labelled(state: State, which: int, reach: int, count: int) -> int:
    """Label the node that a step leads to; return how many were met."""
    to = state.steps[which].to
    node = state.nodes[to]
    if node.label == FAR:
        state.scratch.met[count] = to
        count += 1
    node.label, node.step = reach, which
    return count


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
    """Write the steps by which the first tie was reached, last first; return how many."""
    nodes, steps, path = state.nodes, state.steps, state.path
    nodes[SINK].step = state.scratch.ties[0]
    node, depth = number(SINK), number(0)
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
