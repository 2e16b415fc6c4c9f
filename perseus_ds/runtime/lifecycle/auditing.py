"""After an audit: what all ranks measured so far, written down and logged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import cast

from perseus_ds.errors import PerseusError
from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import read_profile
from perseus_ds.run_directory import Summary, write_summary, write_timelines
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.publishing import (
    RankReport,
    beside_stragglers,
    summarise,
    timelines,
    write_ranks,
)

_MOST_OVERRUNS = 0.01
_DRIFT_PCT = 1.0
"""Of a saving: windows of a profile are measured one after the other, while GPUs warm up and cool down."""

_TWO_SIDES_OF_TWO = 2.0 * math.sqrt(2.0)  # two standard errors, of a ratio of two energies


def audited(context: JobContext, plan: FrequencyPlan) -> Summary | None:
    """Share what was measured and write it down; the figures are sums over all audits so far.

    Rank 0 returns them, once both sides were measured.
    """
    mine = RankReport(
        rank=context.job.rank,
        pipeline_rank=context.job.pipeline_rank,
        replica=context.job.replica,
        totals=context.account.totals,
        outside=context.account.outside,
        durations_s={mode: context.durations.means_s(mode) for mode in (Mode.BASELINE, Mode.PERSEUS)},
        conflicts=context.conflict_monitor.sightings(),
        overrun_share=context.overrun_share(),
    )
    reports = cast("list[RankReport]", context.channel.gather(mine))
    return _published(context, reports, plan) if context.job.rank == 0 else None


def too_slow(reports: Sequence[RankReport]) -> str:
    """Say that a host could not keep up with the GPUs that it simulates; empty where it could."""
    worst = max(report.overrun_share for report in reports)
    if worst <= _MOST_OVERRUNS:
        return ""
    return (
        f"no saving is claimed: {100.0 * worst:.1f} % of the computations took this host longer than the "
        'simulated GPU; set simulated.time to "virtual", or a larger simulated.time_scale'
    )


def _published(context: JobContext, reports: Sequence[RankReport], plan: FrequencyPlan) -> Summary | None:
    if line := too_slow(reports):
        context.log.event("too_slow", line)
        return None
    summary = summarise(
        reports, plan, simulated=context.simulated, facts=_facts(context, plan) | beside_stragglers(reports)
    )
    if summary is None:
        return None
    write_summary(summary, context.directory.summary)
    write_timelines(
        timelines(reports, plan, context.job, simulated=context.simulated), context.directory.timelines
    )
    write_ranks(reports, context.directory)
    context.log.event(
        "measured",
        f"measured: {with_error(summary.saving_pct, summary.saving_within_pct, decimals=1)} energy saved, "
        f"iteration time {with_error(summary.slowdown_pct, summary.slowdown_within_pct, signed=True)} "
        f"({summary.perseus.iterations} iterations at the plan, "
        f"{summary.baseline.iterations} at default clocks)",
        saving_pct=summary.saving_pct,
        saving_se_pct=summary.saving_se_pct,
        slowdown_pct=summary.slowdown_pct,
        slowdown_se_pct=summary.slowdown_se_pct,
    )
    if line := contradiction(summary, _plan_error_pct(context)):
        context.log.event("contradicted", line)
    return summary


def contradiction(summary: Summary, plan_error_pct: float) -> str:
    """Say that what was measured is not what the plan promised, where no error explains it; else nothing."""
    within = summary.saving_within_pct
    if within is None:
        return ""
    apart = summary.saving_pct - summary.predicted_saving_pct
    allowed = within + plan_error_pct
    if abs(apart) <= allowed:
        return ""
    return (
        f"the measurement contradicts the plan, which promised {summary.predicted_saving_pct:.1f} %: "
        f"{abs(apart):.1f} points {'more' if apart > 0 else 'less'}, where {allowed:.1f} can be chance; "
        "a profile of longer windows (perseus.profile.min_window_s) would tell which is right"
    )


def _plan_error_pct(context: JobContext) -> float:
    """By how much a planned saving may be off: what the profile's energies leave open, and drift."""
    try:
        points = read_profile(context.directory.profile).points
    except PerseusError:
        return _DRIFT_PCT
    shares = [point.energy_se_j / point.energy_j for one in points.values() for point in one]
    return _DRIFT_PCT + 100.0 * _TWO_SIDES_OF_TWO * math.sqrt(fmean(share**2 for share in shares))


def with_error(value_pct: float, within_pct: float | None, *, decimals: int = 2, signed: bool = False) -> str:
    """Write a percentage with half of its 95 % interval."""
    rounded = round(value_pct, decimals) + 0.0
    number = f"{rounded:+.{decimals}f}" if signed else f"{rounded:.{decimals}f}"
    return f"{number} %" if within_pct is None else f"{number} +- {within_pct:.{decimals}f} %"


def _facts(context: JobContext, plan: FrequencyPlan) -> dict[str, object]:
    job = context.job
    return {
        "gpu": job.fingerprint["gpu"],
        "gpus": job.ranks,
        "ranks": job.schedule.ranks,
        "stages": job.schedule.stages,
        "microbatches": job.schedule.microbatches,
        "plan": plan.index,
        "planned_iteration_time_s": plan.iteration_time_s,
        "certified_gap_pct": float(plan.of.gap_pct[plan.index]),
        "objective": context.config.objective.policy,
    } | {key: value for key, value in asdict(context.config.report).items() if value is not None}
