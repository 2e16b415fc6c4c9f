"""Problems to try the solver on: pipelines, random graphs, measured and invented tables."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from golden import DATA
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

from perseus_ds.profile import read_profile
from perseus_ds.schedule import dag_of, textbook
from perseus_ds.simulation.gpt3 import gpt3_profile
from perseus_ds.solver.network import hull_of
from perseus_ds.solver.problem import OptionTable, Problem

BLOCKING_W = 83.64
PUBLISHED = "gpt3-175b_a100-sxm_profile.csv"
SOURCES = ("simulated", "published")


def published(name: str) -> Path:
    """One of the published measurements; skips the test where it is not there."""
    if not (DATA / name).exists():
        pytest.skip(f"the published {name} is not in {DATA}: docs/solver.md says where to get it")
    return DATA / name


def gpt3_tables(source: str) -> dict[tuple[int, str], OptionTable]:
    """A GPT-3 175B profile as effective energy, by (stage, kind): published, or the simulated GPU's."""
    profile = gpt3_profile() if source == "simulated" else read_profile(published(PUBLISHED))
    columns = {
        (stage, kind.value): np.array([(point.time_s, point.energy_j) for point in points]).T
        for (stage, kind), points in profile.points.items()
    }
    return {key: OptionTable(t_s, e_j - BLOCKING_W * t_s) for key, (t_s, e_j) in columns.items()}


def pipeline(tables: dict[tuple[int, str], OptionTable], *, stages: int, microbatches: int) -> Problem:
    """1F1B: each computation has its stage's options for its kind."""
    dag, keys = dag_of(textbook("1f1b", stages=stages, microbatches=microbatches)), sorted(tables)
    table_of = np.array([keys.index((node.stage, node.kind.value)) for node in dag.nodes], dtype=np.int32)
    before, after = np.array(dag.edges, dtype=np.int32).reshape(-1, 2).T
    return Problem(tuple(tables[key] for key in keys), table_of, before, after, np.zeros(len(dag.edges)))


def gpt3(source: str, *, stages: int, microbatches: int) -> Problem:
    """The profile's first stages and its heavier last one."""
    measured = gpt3_tables(source)
    heavy = max(stage for stage, _ in measured)
    chosen = {(s, k): measured[heavy if s == stages - 1 else s, k] for s in range(stages) for k in "FB"}
    return pipeline(chosen, stages=stages, microbatches=microbatches)


def noisy_table(rng: np.random.Generator, *, points: int, scale_s: float = 0.05) -> OptionTable:
    """A falling curve with measurement noise, some of its points dominated."""
    stretch = np.sort(rng.uniform(0.0, 0.6, points))
    duration_s = scale_s * (1.0 + stretch)
    cost_j = 100.0 * scale_s * (1.0 + 1.5 * np.exp(-5.0 * stretch)) * rng.normal(1.0, 0.01, points)
    return OptionTable(duration_s, cost_j)


def noisy_pipeline(seed: int, *, stages: int, microbatches: int, points: int) -> Problem:
    rng = np.random.default_rng(seed)
    tables = {
        (stage, kind): noisy_table(rng, points=points, scale_s=rng.uniform(0.8, 1.2) * scale_s)
        for stage in range(stages)
        for kind, scale_s in (("F", 0.05), ("B", 0.1))
    }
    return pipeline(tables, stages=stages, microbatches=microbatches)


def random_problem(seed: int, *, activities: int, points: int = 4, density: float = 0.3) -> Problem:
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(max(1, activities // 2)):
        size = int(rng.integers(1, points + 1))
        tables.append(OptionTable(rng.integers(0, 12, size) / 10.0, rng.integers(-20, 20, size) / 4.0))
    pairs = [(i, j) for j in range(activities) for i in range(j) if rng.random() < density]
    label = rng.permutation(activities)
    before, after = label[np.array(pairs, dtype=int).reshape(-1, 2)].T
    delay_s = rng.choice([0.0, 0.0, 0.0, 0.3], len(pairs))
    return Problem(tuple(tables), rng.integers(0, len(tables), activities), before, after, delay_s)


seeds = st.integers(0, 2**32 - 1)

# Slow and simple ways to the same answers: an LP, a MILP and brute force over all choices.


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
    tables = [problem.tables[table] for table in problem.table_of]
    return [
        (
            longest_path(problem, np.array([t.duration_s[k] for t, k in zip(tables, choice, strict=True)])),
            sum(float(t.cost_j[k]) for t, k in zip(tables, choice, strict=True)),
        )
        for choice in itertools.product(*(range(len(table)) for table in tables))
    ]
