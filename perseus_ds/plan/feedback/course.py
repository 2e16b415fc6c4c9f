"""What a policy is learned on: a schedule's graph, and every computation's hull."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.solver.hull import hull_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEATURES = 2
"""What a policy looks at: how late a computation begins, and how late the one before it on its rank did."""


class LearningGraph(NamedTuple):
    """A graph in topological order; of every computation the one before it on its rank, and its table.

    ``table`` is -1 for what no clock changes, which takes ``fixed_s``; ``previous`` -1 where nothing is
    before. ``delay_s`` stands beside ``before``, the predecessors packed row after row.

    Shape: ``order``, ``previous``, ``table``, ``fixed_s`` [nodes]; ``first_before`` [nodes + 1];
    ``before``, ``delay_s`` [edges].
    """

    order: Ints
    first_before: Ints
    before: Ints
    delay_s: Floats
    previous: Ints
    table: Ints
    fixed_s: Floats


class HullCurves(NamedTuple):
    """The hull of every table, fastest first: table ``t`` has ``first[t]`` to ``first[t + 1]``.

    ``cost_j`` is effective energy, above what the GPU takes waiting for as long.

    Shape: ``first`` [tables + 1]; the others [points].
    """

    first: Ints
    duration_s: Floats
    cost_j: Floats


def course_of(problem: PlanProblem) -> LearningGraph:
    """Pack a problem's graph."""
    nodes, graph = len(problem.dag.nodes), problem.dag.graph
    problem.dag.topological()  # refuses what never ends
    number = {key: index for index, key in enumerate(problem.options)}
    previous, table = np.full(nodes, -1, np.int64), np.full(nodes, -1, np.int64)
    for rank in problem.ranks:
        columns = problem.columns[rank.start : rank.stop]
        previous[columns[1:]] = columns[:-1]
    for column in problem.columns.tolist():
        node = problem.dag.nodes[column]
        table[column] = number[node.stage, node.kind]
    return LearningGraph(
        order=graph.order.astype(np.int64),
        first_before=graph.first_before.astype(np.int64),
        before=graph.before.astype(np.int64),
        delay_s=np.array(problem.dag.delays_s(problem.fixed_s), np.float64)[graph.before_arc],
        previous=previous,
        table=table,
        fixed_s=np.array([problem.fixed_s.get((n.stage, n.kind), 0.0) for n in problem.dag.nodes]),
    )


def curves_of(problem: PlanProblem) -> HullCurves:
    """Put the hulls of all computations one after the other; without reserve."""
    own = problem.reserving(0.0)
    tables = own.activities.tables[: len(own.options)]
    hulls = [hull_of(table) for table in tables]
    return HullCurves(
        first=np.cumsum([0, *(len(hull.option) for hull in hulls)]).astype(np.int64),
        duration_s=np.concatenate([hull.duration_s for hull in hulls]),
        cost_j=np.concatenate([hull.cost_j for hull in hulls]),
    )
