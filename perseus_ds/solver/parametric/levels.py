"""Levels: by how many steps without wait a node leads to the sink."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inner, number
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import GROUND, HIGH, HIGHEST, TIES, State


@inner
def measured(state: State) -> bool:
    """Level nodes by the steps without wait that lead to the sink, fewest first; return if the source is met.

    Nodes that are farther than the source stay below the ground, as do those from which no such way leads.
    """
    state.tally[GROUND] = low = ground(state)
    state.nodes[SINK].level, state.scratch.met[0] = low + 1, SINK
    return _levelled(state, 1, 0)


@inner
def extended(state: State) -> bool:
    """Level what the last search's ties lead from, and what leads there; levels that were measured hold.

    They hold where no way was left when they were measured: the search has moved no node that has one. Each
    step from there to a node that it moved waits longer now, so none is nearer than it was.
    """
    nodes, steps, scratch, size = state.nodes, state.steps, state.scratch, number(0)
    for place in range(state.tally[TIES]):
        step = steps[scratch.ties[place]]
        push(scratch.keys, scratch.nodes, size, nodes[step.to].level + 1, steps[step.twin].to)
        size += 1
    return _levelled(state, 0, size)


@inner
def _levelled(state: State, count: int, size: int) -> bool:
    """Level what leads to the first ``count`` nodes met, or to those in a heap of ``size`` by their level."""
    nodes, steps, scratch, low = state.nodes, state.steps, state.scratch, state.tally[GROUND]
    met, keys, held = scratch.met, scratch.keys, scratch.nodes
    at = number(0)
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
    """What no node's level is above; begin anew where levels would outgrow their field."""
    if state.tally[HIGH] > HIGHEST - len(state.nodes):
        state.tally[HIGH] = 0
        for node in range(len(state.nodes)):
            state.nodes[node].level = 0
    return int(state.tally[HIGH])
