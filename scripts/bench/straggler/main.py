"""What a decision costs at 1 024 to 16 384 ranks, in time and bytes, printed as JSON; see README.md.

python scripts/bench/straggler/main.py [--stages 8] [--rounds 400]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from time import thread_time_ns

import numpy as np

from perseus_ds.device.gpu import ConflictKind
from perseus_ds.runtime.status import StatusLayout
from perseus_ds.straggler.controller import (
    ReplicaStatus,
    StragglerController,
    StragglerDecision,
)

RANKS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
MOST_GROWTH = 1.2  # exponent of the time per decision between 1 024 and 16 384 ranks: 2 would be quadratic
SCATTER = 0.004
SETTLED = 50


def decisions_us(replicas: int, rounds: int, *, slowdown: float) -> tuple[list[float], StragglerDecision]:
    """Thread CPU time of every decision once windows are full; replica 1 is slow from the beginning."""
    controller = StragglerController(np.ones(replicas), np.ones(replicas))
    rng = np.random.default_rng(replicas)
    pace = np.ones(replicas)
    pace[1] = slowdown
    planned_s = announced = np.ones(replicas)
    capped = np.zeros(replicas, dtype=np.bool_)
    found = []
    for _ in range(SETTLED + rounds):
        own_s = pace * planned_s * (1.0 + SCATTER * rng.standard_normal(replicas))
        status = ReplicaStatus(own_s, capped, announced)
        began = thread_time_ns()
        decision = controller.observe(status, planned_s)
        found.append((thread_time_ns() - began) / 1e3)
    return found[SETTLED:], decision


def packing_us(layout: StatusLayout, replicas: int, rounds: int) -> float:
    """Thread CPU time to write one rank's vector and to read the common one."""
    conflicts, announced = (0,) * len(ConflictKind), np.ones(replicas)
    found = []
    for _ in range(rounds):
        began = thread_time_ns()
        vector = layout.vector(own_s=1.0, duration_s=1.0, conflicts=conflicts, announced=announced)
        layout.job_status(vector)
        found.append((thread_time_ns() - began) / 1e3)
    return statistics.median(found)


def one_size(ranks: int, stages: int, rounds: int) -> dict[str, object]:
    """Measure one number of ranks."""
    replicas = ranks // stages
    layout = StatusLayout(replicas=replicas, replica=0)
    calm_us, calm = decisions_us(replicas, rounds, slowdown=1.0)
    slow_us, slow = decisions_us(replicas, rounds, slowdown=1.2)
    assert calm.sync_time_s is None
    assert len(slow.waiting) == replicas - 1
    vector_bytes = layout.vector().nbytes
    return {
        "ranks": ranks,
        "replicas": replicas,
        "calm_us_mean": round(statistics.fmean(calm_us), 1),
        "straggler_us_mean": round(statistics.fmean(slow_us), 1),
        "packing_us": round(packing_us(layout, replicas, rounds), 1),
        "vector_bytes": vector_bytes,
        "sent_bytes_per_rank": round(2 * (ranks - 1) / ranks * vector_bytes),
    }


def growth(sizes: list[dict[str, object]], key: str) -> float:
    """Exponent of growth from 1 024 to 16 384 ranks: 1 is linear."""
    at = {int(str(size["ranks"])): float(str(size[key])) for size in sizes}
    return math.log(at[16384] / at[1024]) / math.log(16384 / 1024)


def main() -> int:
    """Measure, print, and state by the exit code whether anything grows faster than the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    sizes = [one_size(ranks, options.stages, options.rounds) for ranks in RANKS]
    keys = ("calm_us_mean", "straggler_us_mean", "packing_us", "sent_bytes_per_rank")
    exponents = {key: round(growth(sizes, key), 2) for key in keys}
    found = {
        "simulated": True,
        "stages": options.stages,
        "sizes": sizes,
        "growth_exponent_1024_to_16384": exponents,
        "most_growth": MOST_GROWTH,
        "met": max(exponents.values()) <= MOST_GROWTH,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }
    print(json.dumps(found, indent=1))
    return 0 if found["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
