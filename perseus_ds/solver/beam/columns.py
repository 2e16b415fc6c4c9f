"""A column for every activity that is open: those that are never open together share one."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Indices


def columns_of(graph: Graph, order: Indices, column: Indices) -> int:
    """Give every activity a column that no other open one has, in place; return how many there are."""
    return int(_columns(graph, order, column, np.diff(graph.first_after), np.empty_like(column)))


@compiled
def _columns(graph: Graph, order: Indices, column: Indices, open_for: Indices, free: Indices) -> int:
    freed, columns = 0, 0
    for activity in order:
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            open_for[before] -= 1
            if open_for[before] == 0:
                free[freed] = column[before]
                freed += 1
        if freed > 0:
            freed -= 1
            column[activity] = free[freed]
        else:
            column[activity] = columns
            columns += 1
    return columns
