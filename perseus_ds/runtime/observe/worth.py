"""What iterations take, by token and by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from perseus_ds.run_directory.records import MeasuredSide, Summary
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.rank_report import RankReport

_SIDES = {"baseline": Mode.BASELINE, "perseus": Mode.PERSEUS}


def worth(summary: Summary, reports: Sequence[RankReport], job: Job) -> dict[str, object]:
    """Return facts for a summary; what nobody counts is left out.

    Units: joules of the GPUs, per token and per sample.
    """
    found = {name: _of_side(getattr(summary, name), reports, mode, job) for name, mode in _SIDES.items()}
    known = {name: side for name, side in found.items() if side}
    return {"worth": known} if known else {}


def _of_side(side: MeasuredSide, reports: Sequence[RankReport], mode: Mode, job: Job) -> dict[str, float]:
    counts = {"token": _tokens(reports, mode, job), "sample": _samples(job)}
    return {f"energy_per_{name}_j": side.energy_j / count for name, count in counts.items() if count}


def _tokens(reports: Sequence[RankReport], mode: Mode, job: Job) -> float:
    """Tokens of an iteration, as the first rank of each replica's pipeline counted them; 0: nobody did."""
    first = {report.replica: report for report in reports if report.pipeline_rank == 0}
    chunks = len({i.stage for i in job.order}) or 1
    sizes = [[one.size for one in report.totals[mode].samples] for report in first.values()]
    return sum(fmean(row) / chunks for row in sizes if row)


def _samples(job: Job) -> float:
    """Samples of an iteration, where the framework knows the size of a microbatch; else 0."""
    traits: Mapping[str, str] = job.fingerprint
    first = (traits.get("micro_batch_size") or traits.get("microbatch", "")).split(" ")[0]
    each = int(first) if first.isdecimal() else 0
    return each * job.schedule.microbatches * max(1, sum(map(len, job.sets)))
