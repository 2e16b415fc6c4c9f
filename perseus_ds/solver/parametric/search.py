"""How far the sink can come nearer before another path becomes critical: Dijkstra on the waits."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower
from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inner, number
from perseus_ds.solver.parametric.heap import pop, push
from perseus_ds.solver.parametric.state import FAR
from perseus_ds.solver.problem import Indices, Ints


@inner
def search(
    first: Indices,
    to: Indices,
    time: Ints,
    gap: Ints,
    source: int,
    sink: int,
    label: Ints,
    reached_by: Indices,
    met: Indices,
    stack: Indices,
    keys: Ints,
    nodes: Indices,
) -> int:
    """Label nodes with their distance from the source in waits, nearest first; return how many were met.

    The sink's label may hold a bound to begin with; no node that is as far as the sink is looked at.

    Cost: O(steps log steps) on the nodes nearer than the sink.
    Source: Dijkstra 1959.
    """
    label[source], met[0], stack[0] = 0, source, source
    count, waiting, size, near = number(1), number(1), number(0), number(0)
    while True:
        while waiting > 0:
            waiting -= 1
            node = stack[waiting]
            here = near - time[node]
            for step in range(first[node], first[node + 1]):
                other = to[step]
                reach = here + time[other] + gap[step]
                if reach >= label[other] or reach >= label[sink]:
                    continue
                if label[other] == FAR:
                    met[count] = other
                    count += 1
                label[other], reached_by[other] = reach, step
                if other == sink:
                    continue
                if reach == near:
                    stack[waiting] = other
                    waiting += 1
                else:
                    push(keys, nodes, size, reach, other)
                    size += 1
        while size > 0 and keys[0] > label[nodes[0]]:
            pop(keys, nodes, size)
            size -= 1
        if size == 0 or keys[0] >= label[sink]:
            return count
        near, stack[0], waiting = keys[0], nodes[0], 1
        pop(keys, nodes, size)
        size -= 1


@inner
def shift(time: Ints, label: Ints, met: Indices, count: int, sink: int) -> int:
    """Move the nodes met towards the sink by what their labels allow, forget the labels.

    A node moves by how much nearer than the sink it is; the sink stays and the source moves by the sink's
    label, which is returned: the iteration is shorter by that. No wait becomes negative.
    """
    shorter = label[sink]
    for place in range(count):
        node = met[place]
        if label[node] < shorter:
            time[node] += shorter - label[node]
        label[node] = FAR
    label[sink] = FAR
    return int(shorter)
