"""After an audit: what all ranks measured so far, written down and logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import cast

from perseus_ds.errors import PerseusError
from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import read_profile
from perseus_ds.run_directory import Summary, write_summary, write_timelines
from perseus_ds.runtime.lifecycle.findings import contradiction, slower, too_slow, with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.publishing import (
    RankReport,
    beside_stragglers,
    summarise,
    timelines,
    write_ranks,
)

_DRIFT_PCT = 1.0
"""Of a saving: windows of a profile are measured one after the other, while GPUs warm up and cool down."""

_TWO_SIDES_OF_TWO = 2.0 * math.sqrt(2.0)  # two standard errors, of a ratio of two energies


def audited(
    context: JobContext,
    plan: FrequencyPlan,
    expected_pct: float,
    *,
    named: str = "",
    others: Mapping[int, Summary] | None = None,
) -> Summary | None:
    """Share what was measured and write it down; the figures are sums over all audits so far.

    Rank 0 returns them, once both sides were measured. ``context`` is of batches of one size, which ``named``
    says; ``others`` are the figures of all sizes so far.
    """
    microbatches = context.job.schedule.microbatches
    mine = RankReport(
        rank=context.job.rank,
        pipeline_rank=context.job.pipeline_rank,
        replica=context.job.replica,
        totals=context.account.totals_of(microbatches),
        outside=context.account.outside,
        durations_s={
            mode: context.durations.means_s(mode, microbatches=microbatches)
            for mode in (Mode.BASELINE, Mode.PERSEUS)
        },
        conflicts=context.conflict_monitor.sightings(),
        overrun_share=context.overrun_share(),
        clock_requests=context.clock_requests,
    )
    reports = cast("list[RankReport]", context.channel.gather(mine))
    if context.job.rank != 0:
        return None
    return _published(context, reports, plan, expected_pct, named=named, others=others or {})


def _published(
    context: JobContext,
    reports: Sequence[RankReport],
    plan: FrequencyPlan,
    expected_pct: float,
    *,
    named: str,
    others: Mapping[int, Summary],
) -> Summary | None:
    if line := too_slow(reports):
        context.log.event("too_slow", line)
        return None
    summary = summarise(
        reports,
        expected_pct,
        simulated=context.simulated,
        facts=_facts(context, plan) | beside_stragglers(reports),
    )
    if summary is None:
        return None
    sizes = _of_sizes({**others, context.job.schedule.microbatches: summary})
    summary = replace(summary, facts={**summary.facts, **sizes})
    write_summary(summary, context.directory.summary)
    write_timelines(
        timelines(reports, plan, context.job, simulated=context.simulated), context.directory.timelines
    )
    write_ranks(reports, context.directory)
    context.log.event(
        "measured",
        f"{named}measured: "
        f"{with_error(summary.saving_pct, summary.saving_within_pct, decimals=1)} energy saved, "
        f"iteration time {with_error(summary.slowdown_pct, summary.slowdown_within_pct, signed=True)} "
        f"({summary.perseus.iterations} iterations at the plan, "
        f"{summary.baseline.iterations} at default clocks)",
        microbatches=context.job.schedule.microbatches,
        saving_pct=summary.saving_pct,
        saving_se_pct=summary.saving_se_pct,
        slowdown_pct=summary.slowdown_pct,
        slowdown_se_pct=summary.slowdown_se_pct,
    )
    late = [(report.rank, report.clock_requests) for report in reports if report.clock_requests.told]
    if late:
        rank, counts = max(late, key=lambda one: one[1].missed)
        context.log.event("late_clocks", f"{named}rank {rank}: {counts.told}", ranks=[one for one, _ in late])
    if line := contradiction(summary, _plan_error_pct(context)):
        context.log.event("contradicted", f"{named}{line}")
    if line := slower(summary, plan.slowdown_pct, plan.of.reserve_pct):
        context.log.event("slower", f"{named}{line}", slowdown_pct=summary.slowdown_pct)
    return summary


def _of_sizes(summaries: Mapping[int, Summary]) -> dict[str, object]:
    """What was measured in batches of every size, where there are several."""
    if len(summaries) == 1:
        return {}
    keys = ("saving_pct", "saving_se_pct", "slowdown_pct", "slowdown_se_pct")
    return {
        "by_microbatches": {
            str(size): {key: getattr(one, key) for key in keys} | {"iterations": one.perseus.iterations}
            for size, one in sorted(summaries.items())
        }
    }


def _plan_error_pct(context: JobContext) -> float:
    """By how much a planned saving may be off: what the profile's energies leave open, and drift."""
    try:
        points = read_profile(context.directory.profile).points
    except PerseusError:
        return _DRIFT_PCT
    shares = [point.energy_se_j / point.energy_j for one in points.values() for point in one]
    return _DRIFT_PCT + 100.0 * _TWO_SIDES_OF_TWO * math.sqrt(fmean(share**2 for share in shares))


def _facts(context: JobContext, plan: FrequencyPlan) -> dict[str, object]:
    job = context.job
    return {
        "gpu": job.fingerprint["gpu"],
        "gpus": job.ranks,
        "ranks": job.schedule.ranks,
        "stages": job.schedule.stages,
        "microbatches": job.schedule.microbatches,
        "plan": plan.index,
        "planned_saving_pct": plan.saving_pct,
        "planned_iteration_time_s": plan.iteration_time_s,
        "certified_gap_pct": float(plan.of.gap_pct[plan.index]),
        "objective": context.config.objective.policy,
    } | {key: value for key, value in asdict(context.config.report).items() if value is not None}
