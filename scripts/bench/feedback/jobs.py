"""What whole DeepSpeed and Megatron jobs that correct themselves last, and what they expect; virtual time.

Run: ``python scripts/bench/feedback/jobs.py [--seeds 5 6 7 8] [--frameworks deepspeed megatron]``

Four ranks, 2 % noise; audits of 60 iterations every 60, until 360 are measured on each side. Five minutes
a job on two cores. Prints a line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "support"))
import ranks
from corrected_jobs import course
from jobs import agreed, give_way, names, train_until
from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.plan import read_plans
from perseus_ds.run_directory import RunDirectory, read_summary

AUDITS, EVERY, MOST_ITERATIONS = 6, 60, 3000
SHAPE = Shape(pipeline=4)
ranks.PATIENCE_S = 1800.0


def audited(run_dir: Path) -> bool:
    """Whether the last audit is over."""
    return names(run_dir).count("measured") >= AUDITS


def by_megatron(rank: int, block: Mapping[str, Any], run_dir: Path) -> None:
    """Train until the last audit is over."""
    job = Job(SHAPE)
    perseus_ds.attach(job.schedules, config=block)
    job.run_pass = job.schedules.get_forward_backward_func()
    for _ in range(MOST_ITERATIONS):
        job.step()
        if rank == 0:
            give_way(run_dir)
        if agreed(audited(run_dir), False):
            break


def found(framework: str, seed: int) -> dict[str, object]:
    """Train one job; its time and saving against default clocks, percent, measured with standard errors."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        block = course(run_dir)
        block["simulated"]["seed"] = seed
        block["audit"] = {"every_iterations": EVERY, "iterations": EVERY, "settle_s": 0.0}
        if framework == "megatron":
            ranks.run_ranks(SHAPE.ranks, by_megatron, block, run_dir)
        else:
            content = ranks.config(perseus=block)
            ranks.run_ranks(4, _by_deepspeed, content)
        plans = read_plans(run_dir / "plan.json")
        hope = plans.expected[plans.feedback.plan] if plans.feedback else None
        seen = read_summary(RunDirectory(run_dir).summary)
        return {
            "framework": framework,
            "seed": seed,
            "audits": names(run_dir).count("measured"),
            "slower": [seen.slowdown_pct, seen.slowdown_se_pct],
            "slower_expected": hope and [hope.slowdown_pct, hope.slowdown_within_pct],
            "saving": [seen.saving_pct, seen.saving_se_pct],
            "saving_expected": hope and [hope.saving_pct, hope.within_pct],
        }


def _by_deepspeed(rank: int, content: Mapping[str, Any]) -> None:
    train_until(rank, content, 4, audited, at_most=MOST_ITERATIONS)


def main() -> None:
    """Train job after job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8])
    parser.add_argument("--frameworks", nargs="+", default=["deepspeed", "megatron"])
    given = parser.parse_args()
    for seed in given.seeds:
        for framework in given.frameworks:
            print(json.dumps(found(framework, seed)), flush=True)


if __name__ == "__main__":
    main()
