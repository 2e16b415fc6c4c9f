"""After an audit: what all ranks measured so far, written down and logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import numpy as np

from perseus_ds.plan import Expected, FrequencyPlan
from perseus_ds.profile import differ
from perseus_ds.run_directory import Measured, Summary, write_summary, write_timelines
from perseus_ds.runtime.lifecycle.findings import contradiction, slower, too_slow, with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.publishing import (
    RankReport,
    beside_stragglers,
    latest_of,
    summarise,
    timelines,
    write_ranks,
)

_DRIFT_PCT = 1.0
"""Of a saving: windows of a profile are measured one after the other, while GPUs warm up and cool down."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The figures of all audits so far, and what iterations at the plan took since the last one."""

    summary: Summary
    latest: Measured


def audited(
    context: JobContext,
    plan: FrequencyPlan,
    expected: Expected,
    *,
    named: str = "",
    others: Mapping[int, Summary] | None = None,
) -> Audit | None:
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
        period_s=context.account.counter_period_s,
    )
    reports = cast("list[RankReport]", context.channel.gather(mine))
    if context.job.rank != 0:
        return None
    return _published(context, reports, plan, expected, named=named, others=others or {})


def _published(
    context: JobContext,
    reports: Sequence[RankReport],
    plan: FrequencyPlan,
    expected: Expected,
    *,
    named: str,
    others: Mapping[int, Summary],
) -> Audit | None:
    if line := too_slow(reports):
        context.log.event("too_slow", line)
        return None
    summary = summarise(
        reports,
        expected.saving_pct,
        simulated=context.simulated,
        facts=_facts(context, plan, expected) | beside_stragglers(reports),
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
        f"{summary.baseline.iterations} at default clocks{_of_size(context)})",
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
    if line := contradiction(summary, _DRIFT_PCT + expected.within_pct):
        context.log.event("contradicted", f"{named}{line}")
    if line := slower(
        summary, expected.slowdown_pct, plan.of.reserve_pct, within_pct=expected.slowdown_within_pct
    ):
        context.log.event("slower", f"{named}{line}", slowdown_pct=summary.slowdown_pct)
    latest = latest_of(reports, iterations=context.config.audit.every_iterations)
    return Audit(summary, latest or summary.perseus)


def _of_size(context: JobContext) -> str:
    """Say to which size of a microbatch both sides were brought, where sizes differ; as rank 0 sees them."""
    microbatches = context.job.schedule.microbatches
    totals = context.account.totals_of(microbatches)
    sizes = np.array([one.size for mode in (Mode.BASELINE, Mode.PERSEUS) for one in totals[mode].samples])
    if not differ(sizes):
        return ""
    return f", for microbatches of {sizes.mean() / microbatches:.4g} elements"


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


def _facts(context: JobContext, plan: FrequencyPlan, expected: Expected) -> dict[str, object]:
    job = context.job
    return {
        "gpu": job.fingerprint["gpu"],
        "gpus": job.ranks,
        "ranks": job.schedule.ranks,
        "stages": job.schedule.stages,
        "microbatches": job.schedule.microbatches,
        "plan": plan.index,
        "planned_saving_pct": plan.saving_pct,
        "predicted_saving_within_pct": expected.within_pct,
        "predicted_slowdown_pct": expected.slowdown_pct,
        "predicted_slowdown_within_pct": expected.slowdown_within_pct,
        "planned_iteration_time_s": plan.iteration_time_s,
        "certified_gap_pct": float(plan.of.gap_pct[plan.index]),
        "objective": context.config.objective.policy,
    } | {key: value for key, value in asdict(context.config.report).items() if value is not None}
