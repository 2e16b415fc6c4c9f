"""A binary heap of (key, node), least key first, in two arrays that the caller owns."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inner
from perseus_ds.solver.problem import Indices, Ints


@inner
def push(keys: Ints, nodes: Indices, size: int, key: int, node: int) -> None:
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
def pop(keys: Ints, nodes: Indices, size: int) -> None:
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
