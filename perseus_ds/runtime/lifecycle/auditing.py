"""After an audit: what all ranks measured so far, written down, logged, and held against the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from perseus_ds.plan import Expected, FrequencyPlan
from perseus_ds.profile import differ
from perseus_ds.run_directory.records import Summary, write_summary, write_timelines
from perseus_ds.runtime.accounting import Mode, RankBooks, RankReport
from perseus_ds.runtime.event_log import log_troubles
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.findings import (
    contradiction,
    other_temperature,
    slower,
    too_slow,
    with_error,
)
from perseus_ds.runtime.lifecycle.job_context import JobContext, profile_in
from perseus_ds.runtime.summaries import (
    BESIDE_A_STRAGGLER,
    beside_stragglers,
    skipped_steps,
    summarise,
    timelines,
    worth,
    write_ranks,
)

_FEWEST = 10
"""Iterations on either side below which a measurement is called early."""
_DRIFT_PCT = 1.0
"""Of a saving: windows of a profile are measured one after the other, while GPUs warm up and cool down."""


class Audits:
    """The audits of batches of every size; their figures are sums over all audits so far.

    ``summaries`` holds them by the size of the batches, on rank 0.
    """

    def __init__(self, books: RankBooks) -> None:
        self._books = books
        self.summaries: dict[int, Summary] = {}
        self._compared = self._answers_ended = False

    def audit(
        self,
        context: JobContext,
        plan: FrequencyPlan,
        expected: Expected,
        *,
        named: str,
        answers: Mapping[str, object],
    ) -> bool:
        """Bring what was measured to rank 0, which writes it down and decides; collective.

        ``context`` is of batches of one size, which ``named`` names; ``answers`` what answers to stragglers
        have cost and pacing has done, if anything. Returns whether answers to stragglers are to end.
        """
        reports = cast("list[RankReport]", context.channel.gather_to_first(self._books.report(context.job)))

        def decided() -> bool:
            summary = self._published(context, reports, (plan, expected), named, answers)
            if summary is None:
                return False
            self.summaries[context.job.schedule.microbatches] = summary
            return self._costs_too_much(context, summary, named)

        return context.channel.broadcast_result(decided)

    def _costs_too_much(self, context: JobContext, summary: Summary, named: str) -> bool:
        """Report answers to stragglers that cost more time than they may; once."""
        if self._answers_ended or not summary.facts.get(BESIDE_A_STRAGGLER):
            return False
        slower_pct, within_pct = summary.slowdown_pct, summary.slowdown_within_pct
        most_pct = context.config.straggler.max_cost_pct
        if within_pct is None or slower_pct - within_pct <= most_pct:
            return False
        self._answers_ended = True
        context.log.event(
            "answers_ended",
            f"{named}beside a straggler, iterations last {with_error(slower_pct, within_pct, signed=True)} "
            f"longer than at default clocks, where straggler.max_cost_pct allows {most_pct:g} %: nobody is "
            "slowed for a straggler any more",
            slowdown_pct=slower_pct,
        )
        return True

    def forget_plan(self, job: Job) -> None:
        """Begin the plan's side anew: another plan runs from here on."""
        self._books.forget_plan(job)

    def shown(self, microbatches: int) -> dict[str, float]:
        """What monitors show of what was measured.

        ``rank0_*`` is what rank 0's GPU took in the iterations settled last, the rest is of the whole job, as
        the audits measured it.
        """
        scalars: dict[str, float] = {}
        if self._books.latest is not None:
            scalars["rank0_energy_per_iteration_j"], scalars["rank0_power_w"] = self._books.latest
        if (summary := self.summaries.get(microbatches)) is not None:
            energy_j, time_s = summary.perseus.energy_j, summary.perseus.iteration_time_s
            scalars |= {
                "energy_per_iteration_j": energy_j,
                "power_w": energy_j / time_s,
                "saving_pct": summary.saving_pct,
                "slowdown_pct": summary.slowdown_pct,
            }
        return scalars

    def _published(
        self,
        context: JobContext,
        reports: Sequence[RankReport],
        promised: tuple[FrequencyPlan, Expected],
        named: str,
        answers: Mapping[str, object],
    ) -> Summary | None:
        """Write what was measured; None before both sides were, or where it claims nothing."""
        log_troubles(context.log, {one.rank: one.troubles for one in reports})
        if line := too_slow(reports):
            context.log.event("too_slow", line)
            return None
        plan, expected = promised
        facts = (
            _facts(context, plan, expected)
            | beside_stragglers(reports)
            | skipped_steps(reports)
            | dict(answers)
        )
        summary = summarise(reports, expected.saving_pct, simulated=context.simulated, facts=facts)
        if summary is None:
            return None
        valued = worth(summary, reports, context.job)
        summary = replace(summary, facts={**summary.facts, **valued})
        drawn = timelines(reports, plan, context.job, simulated=context.simulated)
        directory, run = context.directory, context.log.run
        context.log.write(directory.summary, lambda: write_summary(summary, directory.summary))
        context.log.write(directory.timelines, lambda: write_timelines(drawn, directory.timelines))
        context.log.write(directory.path, lambda: write_ranks(reports, directory, run=run))
        self._log_measured(context, summary, named)
        _log_findings(context, reports, summary, promised, named)
        self._compare_temperatures(context, reports)
        return summary

    def _compare_temperatures(self, context: JobContext, reports: Sequence[RankReport]) -> None:
        """Hold the first audit's temperatures against the profile's, where there is one."""
        if self._compared:
            return
        self._compared = True
        orders = context.job.schedule.orders
        stages = [sorted({one.stage for one in order if one.kind.is_computation}) for order in orders]
        known = profile_in(context)
        if known is not None and (line := other_temperature(known, reports, stages)):
            context.log.event("other_temperature", line)

    def _log_measured(self, context: JobContext, summary: Summary, named: str) -> None:
        fewest = min(summary.perseus.iterations, summary.baseline.iterations)
        early = "early figure, " if fewest < _FEWEST else ""
        beside = " beside a straggler" if summary.facts.get(BESIDE_A_STRAGGLER) else ""
        context.log.event(
            "measured",
            f"{named}measured{beside}: {early}"
            f"{with_error(summary.saving_pct, summary.saving_within_pct, decimals=1)} energy saved, "
            f"iteration time {with_error(summary.slowdown_pct, summary.slowdown_within_pct, signed=True)} "
            f"({summary.perseus.iterations} iterations at the plan, "
            f"{summary.baseline.iterations} at default clocks{self._of_size(context.job)})",
            microbatches=context.job.schedule.microbatches,
            saving_pct=summary.saving_pct,
            saving_se_pct=summary.saving_se_pct,
            slowdown_pct=summary.slowdown_pct,
            slowdown_se_pct=summary.slowdown_se_pct,
        )

    def _of_size(self, job: Job) -> str:
        """State to which size of a microbatch both sides were brought, where sizes differ."""
        microbatches = job.schedule.microbatches
        totals = self._books.totals_of(microbatches)
        samples = [one for mode in (Mode.BASELINE, Mode.PERSEUS) for one in totals[mode].samples]
        sizes = np.array([one.size for one in samples])
        if not differ(sizes):
            return ""
        return f", for microbatches of {sizes.mean() / microbatches:.0f} elements"


def _log_findings(
    context: JobContext,
    reports: Sequence[RankReport],
    summary: Summary,
    promised: tuple[FrequencyPlan, Expected],
    named: str,
) -> None:
    """Report what is not as it should be."""
    plan, expected = promised
    counts = {report.rank: report.clock_requests for report in reports}
    late = {rank: line for rank, one in counts.items() if (line := one.told())}
    if late:
        rank = max(late, key=lambda one: counts[one].missed)
        context.log.event("late_clocks", f"{named}rank {rank}: {late[rank]}", ranks=list(late))
    if summary.facts.get(BESIDE_A_STRAGGLER):
        return  # how long iterations last, and what waiting takes, is the straggler's doing
    answers = summary.facts.get("answers")
    paced = isinstance(answers, Mapping) and bool(answers.get("paced_iterations"))
    if line := contradiction(summary, _DRIFT_PCT + expected.within_pct, paced=paced):
        context.log.event("contradicted", f"{named}{line}")
    if line := slower(
        summary, expected.slowdown_pct, plan.of.reserve_pct, within_pct=expected.slowdown_within_pct
    ):
        context.log.event("slower", f"{named}{line}", slowdown_pct=summary.slowdown_pct)


def _facts(context: JobContext, plan: FrequencyPlan, expected: Expected) -> dict[str, object]:
    job = context.job
    return {
        "run": context.log.run,
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
    }
