"""What the exact frontier and its plans cost in CPU seconds, how near plans are to their bound, how it grows.

Run: ``python scripts/bench/frontier/main.py [--large] [--profile FILE] > result.json``
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from instances import (
    BLOCKING_W,
    PROFILE,
    Tables,
    interleaved,
    measured,
    noisy,
    own_curves,
    pipeline,
    source,
    split_interleaved,
)

from perseus_ds.solver.check import check_frontier
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import plan_times, solve_frontier, worth_keeping
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.splits import split

T = TypeVar("T")
PLANS = 200
"""About how many plans are made of every frontier."""
Build = Callable[[], tuple[Problem, int]]


def main() -> int:
    """Measure every instance in a process of its own, so that memory is its own."""
    arguments = _arguments()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return 0
    if arguments.profile:
        os.environ[PROFILE] = str(arguments.profile.resolve())
    names = list(INSTANCES) + (list(LARGE) if arguments.large else [])
    rows = [_apart(name) for name in names]
    cold = _apart("gpt3 8x96", fresh_cache=True)
    print(json.dumps({"profile": source(), "instances": rows, "cold": cold}, indent=1))
    return 0


def measure(name: str) -> dict[str, float | int | str]:
    """Solve once to warm up, then report the median of three (large ones: one)."""
    build, until = (INSTANCES | LARGE)[name]
    problem, stages = build()
    first_s, frontier = _timed(lambda: solve_frontier(problem, until_s=until and _until_s(problem, until)))
    repeats = 0 if name in LARGE else 3
    again = [_timed(lambda: solve_frontier(problem))[0] for _ in range(repeats)]
    checked_s, _ = _timed(lambda: check_frontier(problem, frontier))
    row: dict[str, float | int | str] = {
        "instance": name,
        "activities": len(problem),
        "breakpoints": len(frontier),
        "first_s": first_s,
        "warm_s": statistics.median(again or [first_s]),
        "checked_s": checked_s,
    }
    if name not in LARGE:
        row |= _plans(problem, stages)
    row["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _plans(problem: Problem, stages: int) -> dict[str, float | int]:
    frontier = solve_frontier(problem)
    base_w = BLOCKING_W * stages
    times_s = plan_times(frontier, base_power_w=base_w)
    times_s = times_s[:: max(1, len(times_s) // PLANS)]
    discretise(frontier, times_s[:1])
    spent_s, plans = _timed(lambda: discretise(frontier, times_s))
    kept = worth_keeping(plans, base_power_w=base_w)
    gap_pct = 100.0 * (kept.cost_j - kept.bound_j) / (kept.bound_j + base_w * kept.time_s)
    split(frontier, times_s[:1])
    split_s, halves = _timed(lambda: split(frontier, times_s))
    split_gap_pct = 100.0 * (halves.cost_j - halves.bound_j) / (halves.bound_j + base_w * halves.time_s)
    return {
        "split_ms_per_plan": 1e3 * split_s / len(times_s),
        "split_gap_mean_pct": float(split_gap_pct.mean()),
        "split_gap_worst_pct": float(split_gap_pct.max()),
        "plans": len(kept),
        "ms_per_plan": 1e3 * spent_s / len(times_s),
        "gap_mean_pct": float(gap_pct.mean()),
        "gap_worst_pct": float(gap_pct.max()),
        "gap_at_t_min_pct": float(gap_pct[0]),
    }


def _until_s(problem: Problem, factor: float) -> float:
    """The shortest time of all activities at their fastest, so many times."""
    tables = tuple(
        OptionTable(table.duration_s[[k]], table.cost_j[[k]])
        for table in problem.tables
        for k in [int(np.argmin(table.duration_s))]
    )
    return factor * solve_frontier(replace(problem, tables=tables)).t_min_s


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def _apart(name: str, *, fresh_cache: bool = False) -> dict[str, float | int | str]:
    with tempfile.TemporaryDirectory() as empty:
        place = {"NUMBA_CACHE_DIR": empty} if fresh_cache else {}
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, env=os.environ | place, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} could not be measured: see above")
    return json.loads(done.stdout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--large", action="store_true", help="also 16x256, and 65 536 activities: many minutes"
    )
    parser.add_argument(
        "--profile",
        type=Path,
        help="profile of the gpt3 instances; default: the published one, else the simulated",
    )
    parser.add_argument("--one", help="measure one instance in this process")
    return parser.parse_args()


def _gpt3(stages: int, microbatches: int) -> Build:
    return lambda: (pipeline(measured(stages), stages=stages, microbatches=microbatches), stages)


def _noisy(stages: int, microbatches: int) -> Build:
    return lambda: (pipeline(noisy(stages), stages=stages, microbatches=microbatches), stages)


def _interleaved(tables: Callable[[int], Tables]) -> Build:
    """65 536 activities: 16 stages of 4 chunks, 512 microbatches."""
    return lambda: (interleaved(tables(16), stages=16, chunks=4, microbatches=512), 16)


def _split(tables: Callable[[int], Tables]) -> Build:
    """8 ranks of 4 chunks, 64 microbatches, every backward in two halves."""
    return lambda: (split_interleaved(tables(32), ranks=8, chunks=4, microbatches=64), 8)


def _own(stages: int, microbatches: int) -> Build:
    return lambda: (own_curves(_noisy(stages, microbatches)()[0]), stages)


INSTANCES: dict[str, tuple[Build, float | None]] = {
    "gpt3 4x8": (_gpt3(4, 8), None),
    "gpt3 8x12": (_gpt3(8, 12), None),
    "gpt3 8x48": (_gpt3(8, 48), None),
    "gpt3 8x96": (_gpt3(8, 96), None),
    "noisy 8x128": (_noisy(8, 128), None),
    "gpt3 split interleaved 8x4x64": (_split(measured), None),
}
LARGE: dict[str, tuple[Build, float | None]] = {
    "noisy split interleaved 8x4x64": (_split(noisy), None),
    "own curves 8x128": (_own(8, 128), None),
    "gpt3 16x256": (_gpt3(16, 256), None),
    "gpt3 32x256": (_gpt3(32, 256), None),
    "gpt3 32x1024": (_gpt3(32, 1024), None),
    "noisy 16x256": (_noisy(16, 256), None),
    "gpt3 interleaved 16x4x512 to 1.3 T_min": (_interleaved(measured), 1.3),
    "noisy interleaved 16x4x512 to 1.3 T_min": (_interleaved(noisy), 1.3),
}

if __name__ == "__main__":
    raise SystemExit(main())
