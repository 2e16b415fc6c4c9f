"""Is what is expected of a plan what is measured, and is what is measured true? See README.md.

python scripts/bench/uncertainty/main.py results.json [--only 0 3]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from bare_host import BareHost, on_ranks, one_f_one_b
from shapes import SHAPES, Shape

from perseus_ds.device.simulated import opened
from perseus_ds.run_directory import RunDirectory, read_summary
from perseus_ds.run_directory.events import read_events
from perseus_ds.runtime.startup.activation import session_of

JOB_ITERATIONS = 170
SETTLED, COUNTED = 10, 30
BAND_PCT = (90.0, 99.0)
BIAS_PCT = 0.05
TOLD = (
    "planned_saving_pct",
    "predicted_saving_within_pct",
    "predicted_slowdown_pct",
    "predicted_slowdown_within_pct",
)


@dataclass(frozen=True)
class Found:
    """One job: what it measured and what was expected, within what, and what is true; all in percent."""

    job: int
    measured: float
    measured_within: float
    expected: float
    expected_within: float
    planned: float
    true: float
    true_within: float
    slower: float
    slower_within: float
    slower_expected: float
    slower_expected_within: float
    slower_true: float
    slower_true_within: float

    @property
    def within(self) -> float:
        """Half of the interval in which expected less measured lies 95 times in 100."""
        return math.hypot(self.measured_within, self.expected_within)

    @property
    def slower_both_within(self) -> float:
        """The same of the iteration time."""
        return math.hypot(self.slower_within, self.slower_expected_within)


def true_iterations(host: BareHost, block: Mapping[str, object]) -> tuple[list[float], list[float]]:
    """Seconds and joules of many iterations, one by one: this rank's GPU knows."""
    gc.collect()  # of the GPUs that are simulated here the last is the one that lives
    host.begin(block)
    host.train(SETTLED)
    gpu = opened()[-1]
    seen = [gpu.true_now()]
    for _ in range(COUNTED):
        host.train(1)
        seen.append(gpu.true_now())
    host.end()
    steps = list(itertools.pairwise(seen))
    return (
        [after.time_s - before.time_s for before, after in steps],
        [after.energy_j - before.energy_j for before, after in steps],
    )


def one_job(rank: int, run_dir: str, job: int, shape: Shape) -> list[tuple[list[float], list[float]]]:
    """Profile, plan, run and audit, as any job; then ask the GPU what is true of both sides."""
    del rank
    host = BareHost(one_f_one_b(shape.stages, shape.microbatches), weights=shape.weights, sizes=shape.sizes)
    block = shape.block(run_dir, seed=job)
    host.begin(block)
    while not planned(host):
        host.train(5)
    host.train(JOB_ITERATIONS)
    host.end()
    without_audits = {**block, "mode": "run", "audit": {"every_iterations": 0}}
    return [true_iterations(host, {**block, "mode": "observe"}), true_iterations(host, without_audits)]


def planned(host: BareHost) -> bool:
    """Whether rank 0 runs its plan, for everyone."""
    session = session_of(host)
    runs = torch.tensor([float(session is not None and session.lifecycle.active_plan is not None)])
    dist.broadcast(runs, 0)
    return bool(runs.item())


def found_by(folder: Path, job: int, shape: Shape) -> Found:
    """Run one job in processes of its own."""
    run_dir = folder / str(job)
    ranks = on_ranks(shape.ranks, one_job, str(run_dir), job, shape)
    refuse_disabled(run_dir, job)
    times = [_mean(map(max, zip(*(one[side][0] for one in ranks), strict=True))) for side in (0, 1)]
    energies = [_mean(map(sum, zip(*(one[side][1] for one in ranks), strict=True))) for side in (0, 1)]
    slower, slower_within = _ratio(*times)
    used, used_within = _ratio(*energies)
    summary = read_summary(RunDirectory(run_dir).summary)
    facts = {key: float(str(value)) for key, value in summary.facts.items() if key in TOLD}
    return Found(
        job=job,
        measured=summary.saving_pct,
        measured_within=summary.saving_within_pct or 0.0,
        expected=summary.predicted_saving_pct,
        expected_within=facts.get("predicted_saving_within_pct", 0.0),
        planned=facts["planned_saving_pct"],
        true=100.0 * (1.0 - used),
        true_within=100.0 * used_within,
        slower=summary.slowdown_pct,
        slower_within=summary.slowdown_within_pct or 0.0,
        slower_expected=facts.get("predicted_slowdown_pct", 0.0),
        slower_expected_within=facts.get("predicted_slowdown_within_pct", 0.0),
        slower_true=100.0 * (slower - 1.0),
        slower_true_within=100.0 * slower_within,
    )


def refuse_disabled(run_dir: Path, job: int) -> None:
    """A job that went back to default clocks, even for a while, is no figure: busy ranks fall silent.

    Raises:
        SystemExit: with the job's own reason.
    """
    for event in read_events(RunDirectory(run_dir).events):
        if event["event"] in ("disabled", "alone"):
            raise SystemExit(
                f"job {job} ran at default clocks ({event.get('reason')}): no figure. Run --only {job} again"
            )


def _mean(values: Iterable[float]) -> tuple[float, float]:
    """A mean and its standard error."""
    known = list(values)
    return statistics.fmean(known), statistics.stdev(known) / math.sqrt(len(known))


def _ratio(before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    """After over before, and half of the interval that holds it 95 times in 100."""
    ratio = after[0] / before[0]
    return ratio, 2.0 * ratio * math.hypot(before[1] / before[0], after[1] / after[0])


def summed(found: Sequence[Found]) -> dict[str, object]:
    """Put the figures together."""
    high = [one.expected - one.measured for one in found]
    held = [abs(one.expected - one.measured) <= one.within for one in found]
    return {
        "mean_expected_less_measured": statistics.fmean(high),
        "bias_wanted_within": BIAS_PCT,
        "in_the_interval_of_the_difference_pct": _share(held),
        "in_the_measured_interval_pct": _share(
            abs(o.measured - o.true) <= math.hypot(o.measured_within, o.true_within) for o in found
        ),
        "true_in_the_expected_interval_pct": _share(
            abs(o.expected - o.true) <= math.hypot(o.expected_within, o.true_within) for o in found
        ),
        "time_in_the_interval_of_the_difference_pct": _share(
            abs(o.slower_expected - o.slower) <= o.slower_both_within for o in found
        ),
        "true_time_in_the_measured_interval_pct": _share(
            abs(o.slower - o.slower_true) <= math.hypot(o.slower_within, o.slower_true_within) for o in found
        ),
        "true_time_in_the_expected_interval_pct": _share(
            abs(o.slower_expected - o.slower_true)
            <= math.hypot(o.slower_expected_within, o.slower_true_within)
            for o in found
        ),
        "wanted_pct": BAND_PCT,
        "mean_within": statistics.fmean(one.within for one in found),
        "median_measured_within": statistics.median(one.measured_within for one in found),
        "mean_slower_expected_within": statistics.fmean(one.slower_expected_within for one in found),
        "mean_expected_less_true": statistics.fmean(one.expected - one.true for one in found),
        "worst_expected_less_true": max((one.expected - one.true for one in found), key=abs),
        "mean_measured_less_true": statistics.fmean(one.measured - one.true for one in found),
        "mean_planned_less_true": statistics.fmean(one.planned - one.true for one in found),
        "mean_slower_expected": statistics.fmean(one.slower_expected for one in found),
        "mean_slower_measured": statistics.fmean(one.slower for one in found),
        "mean_true_within": statistics.fmean(one.true_within for one in found),
        "mean_slower_true_within": statistics.fmean(one.slower_true_within for one in found),
        "mean_slower_true": statistics.fmean(one.slower_true for one in found),
    }


def _share(holds: Iterable[bool]) -> float:
    known = list(holds)
    return 100.0 * sum(known) / len(known)


def main() -> None:
    """Run job after job; those that are in the file already are not run again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", type=int, nargs="*", default=range(len(SHAPES)))
    options = parser.parse_args()
    rows = json.loads(options.results.read_text())["jobs"] if options.results.exists() else []
    found = {row["job"]: Found(**row) for row in rows}
    for job in options.only:
        if job in found:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[job] = found_by(Path(folder), job, SHAPES[job])
        sys.stderr.write(f"{found[job]}\n")
        jobs = [found[one] for one in sorted(found)]
        content = summed(jobs) | {"jobs": [asdict(one) for one in jobs]}
        options.results.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
