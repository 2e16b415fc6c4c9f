"""What a plan can save at most without losing speed when durations vary, and what a reserve gets of it.

Run: ``python scripts/bench/noise/main.py PROFILE [--microbatches 12] [--noise-pct 2] [--slower-pct 0.2]``

A plan that fills all slack has many paths that are just critical; of many that vary one is always longer than
planned. ``best``: the durations of the cheapest plan whose mean iteration time over SAMPLES draws is at most
so much above that of all clocks at maximum under the same draws. A linear program finds it: no plan with
fixed durations can beat it on these draws (sample average approximation). All are judged on other draws.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.profile import Profile, read_profile
from perseus_ds.schedule import Schedule, textbook
from perseus_ds.solver import Problem, blended, solve_frontier, split

WAITING_W = 83.64
RESERVES_PCT = 0.0, 0.5, 1.0, 2.0, 3.0
SAMPLES, JUDGES = 30, 300

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bench:
    """A schedule under noise; every computation varies by itself."""

    planned: PlanProblem
    noise: float

    @property
    def problem(self) -> Problem:
        """Without any reserve."""
        return self.planned.activities

    @property
    def fastest_s(self) -> Floats:
        """Shape: [activities]."""
        least = np.array([table.duration_s.min() for table in self.problem.tables])
        return least[self.problem.table_of]

    def draws(self, count: int, seed: int) -> Floats:
        """Shape: [count, activities]."""
        factor = 1.0 + self.noise * np.random.default_rng(seed).standard_normal((count, len(self.problem)))
        still = np.ones(len(self.problem), np.bool_)
        still[self.planned.columns] = False
        factor[:, still] = 1.0
        return factor

    def times_s(self, duration_s: Floats) -> Floats:
        """Shape: ``duration_s`` [draws, activities]; returns [draws]."""
        dag, fixed_s = self.planned.dag, self.planned.fixed_s
        start_s = dag.starts_of_many(duration_s.T.copy(), fixed_s)
        return np.asarray((start_s + duration_s.T).max(axis=0))

    def judged(self, duration_s: Floats) -> tuple[float, float]:
        """Saving and slowdown in percent, mean over the judges' draws."""
        hulls = solve_frontier(self.problem).whole.hulls
        factor = self.draws(JUDGES, seed=1)

        def spent_j(duration_s: Floats) -> tuple[float, float]:
            table = self.problem.table_of
            cost_j = sum(
                float(hulls[t].cost_at(np.array([d]))[0]) for t, d in zip(table, duration_s, strict=True)
            )
            mean_s = float(self.times_s(factor * duration_s).mean())
            return cost_j + WAITING_W * self.planned.schedule.ranks * mean_s, mean_s

        (after_j, after_s), (before_j, before_s) = spent_j(duration_s), spent_j(self.fastest_s)
        return 100.0 * (1.0 - after_j / before_j), 100.0 * (after_s / before_s - 1.0)

    def reserved_s(self, profile: Profile, reserve_pct: float) -> Floats:
        """The relaxed plan for T_min with a reserve; what each activity really lasts."""
        problem = problem_of(profile, self.planned.schedule, WAITING_W).reserving(reserve_pct).activities
        frontier = solve_frontier(problem)
        plan = split(problem, frontier, np.array([frontier.t_min_s]))
        planned_s = blended(problem, plan.choice, plan.other, plan.share)[0][0]
        slower = planned_s > self.fastest_s * (1.0 + 1e-9)
        return np.where(
            slower, np.maximum(planned_s / (1.0 + reserve_pct / 100.0), self.fastest_s), planned_s
        )

    def best_s(self, slower_pct: float) -> Floats:
        """The cheapest durations that are no slower than that on SAMPLES draws of their own."""
        rows = _Rows()
        problem, hulls = self.problem, solve_frontier(self.problem).whole.hulls
        count, factor = len(problem), self.draws(SAMPLES, seed=77)
        last = np.setdiff1d(np.arange(count), problem.before)
        for activity, table in enumerate(problem.table_of):
            hull = hulls[table]
            for at, price_w in enumerate(hull.price_w):  # cost >= cost[at] - price (duration - duration[at])
                rows.add(
                    [count + activity, activity],
                    [-1.0, -price_w],
                    -price_w * hull.duration_s[at] - hull.cost_j[at],
                )
        ends = 2 * count + SAMPLES * count
        for draw in range(SAMPLES):
            start = 2 * count + draw * count
            for before, after, delay_s in zip(problem.before, problem.after, problem.delay_s, strict=True):
                rows.add([start + before, before, start + after], [1.0, factor[draw, before], -1.0], -delay_s)
            for activity in last:
                rows.add([start + activity, activity, ends + draw], [1.0, factor[draw, activity], -1.0], 0.0)
        limit_s = float(self.times_s(factor * self.fastest_s).mean()) * (1.0 + slower_pct / 100.0)
        rows.add(list(range(ends, ends + SAMPLES)), [1.0 / SAMPLES] * SAMPLES, limit_s)
        objective = np.zeros(ends + SAMPLES)
        objective[count : 2 * count] = 1.0
        slowest_s = np.array([hull.duration_s[-1] for hull in hulls])[problem.table_of]
        free = [(0.0, None)] * (ends + SAMPLES - 2 * count)
        bounds = [*zip(self.fastest_s, slowest_s, strict=True), *[(None, None)] * count, *free]
        found = linprog(
            objective, A_ub=rows.matrix(ends + SAMPLES), b_ub=rows.most, bounds=bounds, method="highs"
        )
        return np.asarray(found.x[:count])


class _Rows:
    """Inequalities, one after the other."""

    def __init__(self) -> None:
        self.most: list[float] = []
        self._entries: list[tuple[int, int, float]] = []

    def add(self, columns: Sequence[int], values: Sequence[float], most: float) -> None:
        row = len(self.most)
        self._entries += [(row, int(c), float(v)) for c, v in zip(columns, values, strict=True)]
        self.most.append(float(most))

    def matrix(self, width: int) -> coo_matrix:
        row, column, value = zip(*self._entries, strict=True)
        return coo_matrix((value, (row, column)), shape=(len(self.most), width)).tocsr()


def main() -> int:
    """Print rows as JSON."""
    arguments = _arguments()
    profile = read_profile(arguments.profile)
    schedule: Schedule = textbook("1f1b", stages=profile.stages, microbatches=arguments.microbatches)
    bench = Bench(problem_of(profile, schedule, WAITING_W), arguments.noise_pct / 100.0)
    found = {f"reserve {pct:g} %": bench.reserved_s(profile, pct) for pct in RESERVES_PCT}
    found["best"] = bench.best_s(arguments.slower_pct)
    rows = []
    for name, duration_s in found.items():
        saving_pct, slower_pct = bench.judged(duration_s)
        rows.append({"plan": name, "saving_pct": saving_pct, "slower_pct": slower_pct})
    print(
        json.dumps(
            {"noise_pct": arguments.noise_pct, "microbatches": arguments.microbatches, "plans": rows},
            indent=1,
        )
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--noise-pct", type=float, default=2.0)
    parser.add_argument("--slower-pct", type=float, default=0.2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
