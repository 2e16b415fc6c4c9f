"""Slow and simple ways to the same answers: an LP, a MILP and brute force over all choices."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

from perseus_ds.solver import OptionTable, Problem
from perseus_ds.solver.network import hull_of


def relaxed_cost(problem: Problem, time_s: float) -> float:
    """The least cost within ``time_s`` with every curve made convex, by HiGHS.

    Variables: start of each activity, its duration, its cost; cost is above every line of its hull.
    """
    n = len(problem)
    rows: list[tuple[dict[int, float], float]] = []
    bounds: list[tuple[float | None, float | None]] = [(0.0, None)] * n
    hulls = [hull_of(problem.tables[table]) for table in problem.table_of]
    bounds += [(hull.duration_s[0], hull.duration_s[-1]) for hull in hulls] + [(None, None)] * n
    for i, hull in enumerate(hulls):
        rows.append(({i: 1.0, n + i: 1.0}, time_s))
        slope = hull.price_w if len(hull.price_w) else np.zeros(1)
        for d, c, w in zip(hull.duration_s, hull.cost_j, slope, strict=False):
            rows.append(({2 * n + i: -1.0, n + i: -w}, -c - w * d))
    for b, a, delay in zip(problem.before.tolist(), problem.after.tolist(), problem.delay_s, strict=True):
        rows.append(({b: 1.0, n + b: 1.0, a: -1.0}, -delay))
    matrix, right = _matrix(rows, 3 * n)
    objective = np.r_[np.zeros(2 * n), np.ones(n)]
    found = linprog(objective, A_ub=matrix, b_ub=right, bounds=bounds, method="highs")
    assert found.status == 0, found.message
    return float(found.fun)


def _matrix(rows: list[tuple[dict[int, float], float]], width: int) -> tuple[coo_array, np.ndarray]:
    entries = [(value, row, column) for row, (line, _) in enumerate(rows) for column, value in line.items()]
    values, row, column = (np.array(part) for part in zip(*entries, strict=True))
    shape = (len(rows), width)
    matrix = coo_array((values, (row.astype(int), column.astype(int))), shape=shape)
    return matrix, np.array([right for _, right in rows])


def discrete_cost(problem: Problem, time_s: float, *, limit_s: float = 60.0) -> tuple[float, float]:
    """The least cost of real options within ``time_s`` and the bound that was proved, by HiGHS."""
    n = len(problem)
    tables = [problem.tables[table] for table in problem.table_of]
    first = n + np.concatenate(([0], np.cumsum([len(table) for table in tables])))
    width = int(first[-1])
    lasts = [
        {int(begin) + k: float(d) for k, d in enumerate(table.duration_s)}
        for begin, table in zip(first, tables, strict=False)
    ]
    one = [({int(first[i]) + k: 1.0 for k in range(len(table))}, 1.0) for i, table in enumerate(tables)]
    late = [({i: 1.0} | lasts[i], time_s) for i in range(n)]
    for b, a, delay in zip(problem.before.tolist(), problem.after.tolist(), problem.delay_s, strict=True):
        late.append(({b: 1.0, a: -1.0} | lasts[b], -float(delay)))
    late_matrix, late_right = _matrix(late, width)
    one_matrix, one_right = _matrix(one, width)
    found = milp(
        np.concatenate([np.zeros(n), *(table.cost_j for table in tables)]),
        integrality=np.r_[np.zeros(n), np.ones(width - n)],
        bounds=Bounds(np.zeros(width), np.r_[np.full(n, np.inf), np.ones(width - n)]),
        constraints=[
            LinearConstraint(late_matrix.tocsr(), -np.inf, late_right),
            LinearConstraint(one_matrix.tocsr(), one_right, one_right),
        ],
        options={"time_limit": limit_s, "mip_rel_gap": 1e-6},
    )
    assert found.x is not None, found.message
    return float(found.fun), float(found.mip_dual_bound)


def longest_path(problem: Problem, durations: np.ndarray) -> float:
    """The longest path, by as many relaxations as there are activities."""
    end = np.array(durations, dtype=float)
    for _ in range(len(problem)):
        later = end.copy()
        np.maximum.at(later, problem.after, end[problem.before] + problem.delay_s + durations[problem.after])
        if (later == end).all():
            break
        end = later
    return float(end.max())


def brute_force(problem: Problem) -> list[tuple[float, float]]:
    """Every choice's (time, cost)."""
    tables = [problem.tables[table] for table in problem.table_of]
    return [
        (
            longest_path(problem, np.array([t.duration_s[k] for t, k in zip(tables, choice, strict=True)])),
            sum(float(t.cost_j[k]) for t, k in zip(tables, choice, strict=True)),
        )
        for choice in itertools.product(*(range(len(table)) for table in tables))
    ]


def lower_hull(table: OptionTable) -> list[tuple[float, float]]:
    """Corners of the convex curve through the options, the least cost first, then ever faster and dearer."""
    points = sorted({*zip(table.duration_s.tolist(), table.cost_j.tolist(), strict=True)})
    here = min(points, key=lambda point: (point[1], point[0]))
    corners = [here]
    while faster := [point for point in points if point[0] < here[0]]:
        here = min(faster, key=lambda point: ((point[1] - here[1]) / (here[0] - point[0]), point[0]))
        corners.append(here)
    return corners
