"""Does the stated uncertainty of a saving hold the true one? Printed as JSON; see README.md.

python scripts/bench/uncertainty/main.py [--seeds 30] [--stages 2] [--microbatches 4]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from bare_host import BareHost, on_ranks, one_f_one_b

from perseus_ds.device.simulated import opened
from perseus_ds.run_directory import RunDirectory, read_summary
from perseus_ds.runtime.startup.activation import session_of

EVERY, AUDIT = 50, 12
JOB_ITERATIONS = 230
SETTLED, COUNTED = 20, 100
UNEVEN = 1.25  # the last stage holds the head
BAND_PCT = (90.0, 99.0)


@dataclass(frozen=True)
class Seed:
    """One job: what it measured, within what, what was expected of its plan, and what is true."""

    seed: int
    measured_pct: float
    within_pct: float
    predicted_pct: float
    planned_pct: float
    true_pct: float
    slowdown_pct: float
    slowdown_within_pct: float
    true_slowdown_pct: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the true saving."""
        return abs(self.measured_pct - self.true_pct) <= self.within_pct


def block_of(run_dir: str, seed: int) -> dict[str, object]:
    """Return the job's block: everything as by default but for a short sweep and frequent audits."""
    return {
        "run_dir": run_dir,
        "device": "simulated",
        "profile": {"min_window_s": 12.0, "max_clocks": 8},
        "audit": {"every_iterations": EVERY, "iterations": AUDIT},
        "simulated": {"seed": seed},
    }


def true_iteration(host: BareHost, block: Mapping[str, object]) -> tuple[float, float]:
    """Seconds and joules of an iteration in the long run: this rank's GPU knows."""
    host.begin(block)
    host.train(SETTLED)
    gpu = opened()[-1]
    before = gpu.true_now()
    host.train(COUNTED)
    after = gpu.true_now()
    host.end()
    return (after.time_s - before.time_s) / COUNTED, (after.energy_j - before.energy_j) / COUNTED


def one_job(rank: int, run_dir: str, seed: int, shape: tuple[int, int]) -> list[tuple[float, float]]:
    """Profile, plan, run and audit, as any job; then ask the GPU what is true of both sides."""
    del rank
    stages, microbatches = shape
    host = BareHost(one_f_one_b(stages, microbatches), weights=[1.0] * (stages - 1) + [UNEVEN])
    block = block_of(run_dir, seed)
    host.begin(block)
    while not planned(host):
        host.train(5)
    host.train(JOB_ITERATIONS)
    host.end()
    without_audits = {**block, "mode": "run", "audit": {"every_iterations": 0}}
    return [true_iteration(host, {**block, "mode": "observe"}), true_iteration(host, without_audits)]


def planned(host: BareHost) -> bool:
    """Whether rank 0 runs its plan, for everyone."""
    session = session_of(host)
    runs = torch.tensor([float(session is not None and session.lifecycle.active_plan is not None)])
    dist.broadcast(runs, 0)
    return bool(runs.item())


def measured(folder: Path, seed: int, shape: tuple[int, int]) -> Seed:
    """Run one job in processes of its own."""
    run_dir = folder / str(seed)
    ranks = on_ranks(shape[0], one_job, str(run_dir), seed, shape)
    (before_s, before_j), (after_s, after_j) = (
        (max(one[side][0] for one in ranks), sum(one[side][1] for one in ranks)) for side in (0, 1)
    )
    summary = read_summary(RunDirectory(run_dir).summary)
    return Seed(
        seed=seed,
        measured_pct=summary.saving_pct,
        within_pct=summary.saving_within_pct or 0.0,
        predicted_pct=summary.predicted_saving_pct,
        planned_pct=float(str(summary.facts["planned_saving_pct"])),
        true_pct=100.0 * (1.0 - after_j / before_j),
        slowdown_pct=summary.slowdown_pct,
        slowdown_within_pct=summary.slowdown_within_pct or 0.0,
        true_slowdown_pct=100.0 * (after_s / before_s - 1.0),
    )


def summed(seeds: list[Seed]) -> dict[str, object]:
    """Put the figures together."""
    covered_pct = 100.0 * sum(seed.covered for seed in seeds) / len(seeds)
    return {
        "covered_pct": covered_pct,
        "band_pct": BAND_PCT,
        "covered_within_band": BAND_PCT[0] <= covered_pct <= BAND_PCT[1],
        "mean_within_pct": statistics.fmean(seed.within_pct for seed in seeds),
        "mean_error_pct": statistics.fmean(seed.measured_pct - seed.true_pct for seed in seeds),
        "worst_error_pct": max(abs(seed.measured_pct - seed.true_pct) for seed in seeds),
        "mean_error_of_prediction_pct": statistics.fmean(s.predicted_pct - s.true_pct for s in seeds),
        "worst_error_of_prediction_pct": max(abs(s.predicted_pct - s.true_pct) for s in seeds),
        "mean_error_of_plan_pct": statistics.fmean(s.planned_pct - s.true_pct for s in seeds),
        "worst_true_slowdown_pct": max(seed.true_slowdown_pct for seed in seeds),
        "seeds": [asdict(seed) for seed in seeds],
    }


def main() -> None:
    """Run job after job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=4)
    options = parser.parse_args()
    shape = (options.stages, options.microbatches)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            found.append(measured(Path(folder), seed, shape))
            sys.stderr.write(f"{found[-1]}\n")
    sys.stdout.write(json.dumps(summed(found), indent=1) + "\n")


if __name__ == "__main__":
    main()
