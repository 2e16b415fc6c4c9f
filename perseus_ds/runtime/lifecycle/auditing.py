"""After an audit: what all ranks measured so far, written down and said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from perseus_ds.plan import FrequencyPlan
from perseus_ds.run_directory import Summary, write_summary, write_timelines
from perseus_ds.runtime.lifecycle.job_context import Ground
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.publishing import (
    RankReport,
    beside_stragglers,
    summarise,
    timelines,
    write_ranks,
)


def audited(ground: Ground, plan: FrequencyPlan) -> Summary | None:
    """Share what was measured and write it down; the figures are sums over all audits so far.

    Rank 0 returns them, once both sides were measured.
    """
    mine = RankReport(
        rank=ground.job.rank,
        stage=ground.job.stage,
        replica=ground.job.replica,
        totals=ground.account.totals,
        durations_s={mode: ground.durations.means_s(mode) for mode in (Mode.BASELINE, Mode.PERSEUS)},
        conflicts=ground.lookout.sightings(),
    )
    reports = cast("list[RankReport]", ground.council.share(mine))
    return _published(ground, reports, plan) if ground.job.rank == 0 else None


def _published(ground: Ground, reports: Sequence[RankReport], plan: FrequencyPlan) -> Summary | None:
    summary = summarise(
        reports, plan, simulated=ground.simulated, facts=_facts(ground, plan) | beside_stragglers(reports)
    )
    if summary is None:
        return None
    write_summary(summary, ground.directory.summary)
    write_timelines(
        timelines(reports, plan, ground.job, simulated=ground.simulated), ground.directory.timelines
    )
    write_ranks(reports, ground.directory)
    ground.voice.event(
        "measured",
        f"measured: {summary.saving_pct:.1f} % energy saved, iteration time "
        f"{round(summary.slowdown_pct, 2) + 0.0:+.2f} % "
        f"({summary.perseus.iterations} iterations at the plan, "
        f"{summary.baseline.iterations} at default clocks)",
        saving_pct=summary.saving_pct,
        slowdown_pct=summary.slowdown_pct,
    )
    return summary


def _facts(ground: Ground, plan: FrequencyPlan) -> dict[str, object]:
    job = ground.job
    return {
        "gpu": job.fingerprint["gpu"],
        "gpus": job.ranks,
        "stages": job.schedule.stages,
        "microbatches": job.schedule.microbatches,
        "plan": plan.index,
        "planned_iteration_time_s": plan.iteration_time_s,
        "certified_gap_pct": float(plan.of.gap_pct[plan.index]),
        "objective": ground.config.objective.policy,
    }
