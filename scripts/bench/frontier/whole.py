"""Plans of one option each, of an earlier revision and of the working tree, in turns: how near, how dear.

Run: ``python scripts/bench/frontier/whole.py [REVISION] [--only PATTERN] [--turns 3] > result.json``

Both plan at the product's own times. Savings are read as a job reads them, at a thousand times of which few
have a plan of their own. The plan of the nearest faster time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import numpy as np
from instances import BLOCKING_W, Tables, measured, noisy, pipeline, source
from numpy.typing import NDArray

from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j, work_power_w
from perseus_ds.simulation.textbook_gpu import textbook_profile
from perseus_ds.solver.check import check_plans
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import plan_times, solve_frontier, worth_keeping
from perseus_ds.solver.problem import OptionTable, Problem

ROOT = Path(__file__).resolve().parents[3]
REVISION = "1a2f63a"
READ = 1000
"""Times at which a frontier of plans is read."""
Row = dict[str, float | int | str]


def candidate_clocks(grid_mhz: Sequence[int], count: int) -> tuple[int, ...]:
    """Spread clocks evenly from the highest to half of it, on clocks that the device has."""
    grid = sorted(set(grid_mhz), reverse=True)
    useful = [clock for clock in grid if clock >= 0.5 * grid[0]]
    count = min(count, len(useful))
    if count == 1:
        return (useful[0],)
    span = len(useful) - 1
    return tuple(useful[round(index * span / (count - 1))] for index in range(count))


def main() -> int:
    """Compare every instance that is named."""
    arguments = _arguments()
    if arguments.one:
        _solve(arguments.one, Path(arguments.found))
        return 0
    names = [name for name in INSTANCES if fnmatch(name, arguments.only)]
    with tempfile.TemporaryDirectory() as folder:
        then = Path(folder) / "then"
        then.mkdir()
        archive = subprocess.run(
            ["git", "archive", arguments.revision, "perseus_ds"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(then)], input=archive.stdout, check=True)
        rows = [_compared(name, then, arguments.turns) for name in names]
    print(json.dumps({"revision": arguments.revision, "profile": source(), "instances": rows}, indent=1))
    return 0


def _compared(name: str, then: Path, turns: int) -> Row:
    """Solve in turns, each in a process of its own; the least CPU time counts, as the host is shared."""
    runs = [(_apart(name, then), _apart(name, ROOT)) for _ in range(turns)]
    cpu_s = [min(float(run[side]["cpu_s"]) for run in runs) for side in (0, 1)]
    (before, now), change = runs[0], runs[0][1]["saving_pct"] - runs[0][0]["saving_pct"]
    return {
        "instance": name,
        "activities": int(now["activities"]),
        "plans_then": len(before["time_s"]),
        "plans_now": len(now["time_s"]),
        "cpu_s_then": round(cpu_s[0], 3),
        "cpu_s_now": round(cpu_s[1], 3),
        "cpu_ratio": round(cpu_s[1] / cpu_s[0], 3),
        "saving_at_t_min_pct_then": round(float(before["saving_pct"][0]), 4),
        "points_at_t_min": round(float(change[0]), 5),
        "points_mean": round(float(change.mean()), 5),
        "points_least": round(float(change.min()), 5),
        "points_most": round(float(change.max()), 5),
        "gap_mean_pct_then": round(float(before["gap_pct"].mean()), 4),
        "gap_mean_pct_now": round(float(now["gap_pct"].mean()), 4),
    }


def _apart(name: str, tree: Path) -> dict[str, NDArray[np.float64]]:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.npz"
        command = [sys.executable, __file__, "--one", name, "--found", str(found)]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tree)}, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{name} could not be solved in {tree}: see above")
        return dict(np.load(found))


def _solve(name: str, found: Path) -> None:
    problem, base_w = INSTANCES[name]()
    frontier = solve_frontier(problem)
    times_s = plan_times(problem, frontier, base_power_w=base_w)
    discretise(problem, frontier, times_s[:2])  # compiles
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    plans = discretise(problem, frontier, times_s)
    spent_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    check_plans(problem, plans, frontier=frontier)
    plans = worth_keeping(plans, base_power_w=base_w)
    read_s = np.linspace(frontier.t_min_s, frontier.t_star_s, READ)
    row = np.maximum(np.searchsorted(plans.time_s, read_s * (1 + 1e-9), side="right") - 1, 0)
    fastest = [table.cost_j[np.lexsort((table.cost_j, table.duration_s))[0]] for table in problem.tables]
    default_j = float(np.array(fastest)[problem.table_of].sum()) + base_w * frontier.t_min_s
    total_j = plans.cost_j[row] + base_w * read_s
    np.savez(
        found,
        activities=len(problem),
        cpu_s=spent_s,
        time_s=plans.time_s,
        saving_pct=100.0 * (1.0 - total_j / default_j),
        gap_pct=100.0 * (plans.cost_j - plans.bound_j) / (plans.bound_j + base_w * plans.time_s),
    )


def _simulated(gpu: str, clocks: int, microbatches: int) -> tuple[Problem, float]:
    """Eight stages of another GPU, embedding and head as in a GPT, at fewer clocks."""
    model = model_named(gpu)
    clocks_mhz = candidate_clocks(model.clocks_mhz, clocks)
    waiting_w, tables = work_power_w(model, clocks_mhz[0], 0.0), {}
    for stage, weight in enumerate((0.96, *[1.0] * 6, 1.08)):
        for kind, scale_s in (("F", 0.06), ("B", 0.12)):
            work = Work(weight * scale_s, 0.1, 1.0)
            time_s = np.array([duration_s(model, mhz, work) for mhz in clocks_mhz])
            spent_j = np.array([energy_j(model, mhz, work) for mhz in clocks_mhz])
            tables[stage, kind] = OptionTable(time_s, spent_j - waiting_w * time_s)
    return pipeline(tables, stages=8, microbatches=microbatches), 8 * waiting_w


def _uneven(stages: int, microbatches: int) -> tuple[Problem, float]:
    """A textbook GPU; every stage has work of its own, as where layers are shared out unevenly."""
    profile = textbook_profile(np.random.default_rng(3).uniform(0.7, 1.4, stages).tolist())
    waiting_w = profile.blocking_power_w
    tables = {
        (stage, kind.value): OptionTable(
            np.array([point.time_s for point in points]),
            np.array([point.energy_j - waiting_w * point.time_s for point in points]),
        )
        for (stage, kind), points in profile.points.items()
    }
    return pipeline(tables, stages=stages, microbatches=microbatches), stages * waiting_w


def _instance(tables: Callable[[int], Tables], stages: int, microbatches: int) -> tuple[Problem, float]:
    problem = pipeline(tables(stages), stages=stages, microbatches=microbatches)
    return problem, stages * BLOCKING_W


INSTANCES: dict[str, Callable[[], tuple[Problem, float]]] = {
    "gpt3 4x8": partial(_instance, measured, 4, 8),
    "gpt3 8x12": partial(_instance, measured, 8, 12),
    "gpt3 8x48": partial(_instance, measured, 8, 48),
    "gpt3 8x96": partial(_instance, measured, 8, 96),
    "a40 8x12": partial(_simulated, "a40", 24, 12),
    "a40 8x48": partial(_simulated, "a40", 24, 48),
    "a40 at 6 clocks 8x24": partial(_simulated, "a40", 6, 24),
    "uneven 6x24": partial(_uneven, 6, 24),
    "noisy 8x24": partial(_instance, noisy, 8, 24),
    "noisy 4x96": partial(_instance, noisy, 4, 96),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default=REVISION, help=f"default: {REVISION}")
    parser.add_argument("--only", default="*", help="names of instances, with * and ?")
    parser.add_argument("--turns", type=int, default=3, help="runs of each, the least counts; default: 3")
    parser.add_argument("--one", help="solve one instance in this process")
    parser.add_argument("--found", help="where its result goes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
