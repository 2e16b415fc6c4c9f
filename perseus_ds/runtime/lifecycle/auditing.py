"""After an audit: what all ranks measured so far, written down and logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

from perseus_ds.plan import FrequencyPlan
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


def audited(context: JobContext, plan: FrequencyPlan) -> Summary | None:
    """Share what was measured and write it down; the figures are sums over all audits so far.

    Rank 0 returns them, once both sides were measured.
    """
    mine = RankReport(
        rank=context.job.rank,
        pipeline_rank=context.job.pipeline_rank,
        replica=context.job.replica,
        totals=context.account.totals,
        durations_s={mode: context.durations.means_s(mode) for mode in (Mode.BASELINE, Mode.PERSEUS)},
        conflicts=context.conflict_monitor.sightings(),
    )
    reports = cast("list[RankReport]", context.channel.gather(mine))
    return _published(context, reports, plan) if context.job.rank == 0 else None


def _published(context: JobContext, reports: Sequence[RankReport], plan: FrequencyPlan) -> Summary | None:
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
        f"measured: {summary.saving_pct:.1f} % energy saved, iteration time "
        f"{round(summary.slowdown_pct, 2) + 0.0:+.2f} % "
        f"({summary.perseus.iterations} iterations at the plan, "
        f"{summary.baseline.iterations} at default clocks)",
        saving_pct=summary.saving_pct,
        slowdown_pct=summary.slowdown_pct,
    )
    return summary


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
