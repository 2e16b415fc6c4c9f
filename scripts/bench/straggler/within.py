"""What plans that follow the loads of microbatches would save within one replica, as JSON; see README.md.

python scripts/bench/straggler/within.py [--draws 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from time import thread_time_ns

import numpy as np
from numpy.typing import NDArray
from traces import gpt3_plans

from perseus_ds.plan import PlanSet
from perseus_ds.schedule import dag_of
from perseus_ds.solver import OptionTable, Problem, solve_frontier

VARY = (0.0, 0.1, 0.3)  # standard deviation of a microbatch's load, log-normal
SHORTEST = 1.0001  # of the time that the highest clocks take
Floats = NDArray[np.float64]


class Iteration:
    """One iteration of GPT-3's pipeline (8 stages, 12 microbatches), its loads given."""

    def __init__(self, plans: PlanSet) -> None:
        self._plans, self._dag = plans, dag_of(plans.schedule)
        column = {instruction: place for place, instruction in enumerate(plans.computations())}
        nodes = self._dag.nodes
        self._options = [plans.options[node.stage, node.kind] for node in nodes]
        self._microbatch = np.array([node.microbatch for node in nodes])
        highest = np.zeros(len(nodes), dtype=np.int64)
        self._highest = self._of(highest)
        fastest = [
            plans.blended(column[node], np.arange(float(len(o.time_s))))[0]
            for node, o in zip(nodes, self._options, strict=True)
        ]
        self._planned = self._of(np.round(fastest).astype(np.int64))

    def _of(self, choice: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Durations, and energy beyond that of waiting."""
        time_s = np.array([o.time_s[c] for o, c in zip(self._options, choice, strict=True)])
        energy_j = np.array([o.energy_j[c] for o, c in zip(self._options, choice, strict=True)])
        return time_s, energy_j - self._plans.blocking_power_w * time_s

    def figures(self, load: Floats) -> tuple[float, ...]:
        """Slowdown and saving of the fastest plan; savings of one that knows the loads; CPU time of that.

        The last two savings are at the time of the highest clocks, and at that of the fastest plan.
        Units: percent, milliseconds.
        """
        factor = load[self._microbatch]
        highest_s, planned_s = (
            self._lasts_s(self._highest[0] * factor),
            self._lasts_s(self._planned[0] * factor),
        )
        began = thread_time_ns()
        frontier = solve_frontier(self._problem(factor))
        spent_ms = (thread_time_ns() - began) / 1e6

        def total_j(cost_j: float, time_s: float) -> float:
            return cost_j + self._plans.blocking_total_w * time_s

        base_j = total_j(float(self._highest[1] @ factor), highest_s)
        planned_j = total_j(float(self._planned[1] @ factor), planned_s)
        own_j = [
            total_j(float(frontier.cost_at(SHORTEST * time_s)), SHORTEST * time_s)
            for time_s in (highest_s, max(highest_s, planned_s))
        ]
        saved = [100.0 * (1.0 - energy_j / base_j) for energy_j in (planned_j, *own_j)]
        return (100.0 * (planned_s / highest_s - 1.0), *saved, spent_ms)

    def _problem(self, factor: Floats) -> Problem:
        waiting_w = self._plans.blocking_power_w
        tables = tuple(
            OptionTable(o.time_s * times, (o.energy_j - waiting_w * o.time_s) * times)
            for o, times in zip(self._options, factor, strict=True)
        )
        before, after = np.array(self._dag.edges).T
        return Problem(tables, np.arange(len(tables), dtype=np.int32), before, after, np.zeros(len(before)))

    def _lasts_s(self, time_s: Floats) -> float:
        return float(np.max(self._dag.earliest_starts(time_s.tolist(), self._plans.fixed_s) + time_s))


def main() -> int:
    """Draw loads, and print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    draws = parser.parse_args().draws
    plans, random, found = gpt3_plans(None), np.random.default_rng(0), {}
    iteration = Iteration(plans)
    names = (
        "slowdown_pct",
        "saving_pct",
        "following_saving_pct",
        "following_as_slow_saving_pct",
        "solved_ms",
    )
    for vary in VARY:
        loads = np.exp(vary * random.standard_normal((draws, plans.schedule.microbatches)) - vary**2 / 2.0)
        rows = [iteration.figures(load) for load in loads]
        found[str(vary)] = {
            name: round((statistics.median if name == "solved_ms" else statistics.fmean)(part), 2)
            for name, part in zip(names, zip(*rows, strict=True), strict=True)
        }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
