"""What iterations take, by token, by sample, and in the prices of the block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from perseus_ds.config import ReportSettings
from perseus_ds.run_directory import MeasuredSide, Summary
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.rank_report import RankReport

_J_PER_KWH = 3.6e6
_SIDES = {"baseline": Mode.BASELINE, "perseus": Mode.PERSEUS}


def worth(
    summary: Summary, reports: Sequence[RankReport], job: Job, prices: ReportSettings
) -> dict[str, object]:
    """Return facts for a summary; what nobody counts, or has no price, is left out.

    Units: joules per token and per sample; the currency of the price; grams of CO2. Energy is that of the
    GPUs, prices are of what the building takes with them (``pue``).
    """
    found = {
        name: _of_side(getattr(summary, name), reports, mode, job, prices) for name, mode in _SIDES.items()
    }
    known = {name: side for name, side in found.items() if side}
    return {"worth": known} if known else {}


def _of_side(
    side: MeasuredSide, reports: Sequence[RankReport], mode: Mode, job: Job, prices: ReportSettings
) -> dict[str, float]:
    counts = {"token": _tokens(reports, mode, job), "sample": _samples(job)}
    each = {f"energy_per_{name}_j": side.energy_j / count for name, count in counts.items() if count}
    return each | _priced("iteration", side.energy_j, prices)


def _priced(what: str, energy_j: float, prices: ReportSettings) -> dict[str, float]:
    kwh = prices.pue * energy_j / _J_PER_KWH
    each = {"cost": prices.price_per_kwh, "gco2": prices.gco2_per_kwh}
    return {f"{what}_{name}": kwh * price for name, price in each.items() if price is not None}


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
