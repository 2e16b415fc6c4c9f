"""The plan of batches of one size: chosen by the objective, reported, and judged by its audits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PlanError
from perseus_ds.plan import FrequencyPlan, PlanSet, select
from perseus_ds.plan.expected import expected
from perseus_ds.plan.file import loads
from perseus_ds.plan.record import Expected
from perseus_ds.plan.reserve import doubt, too_little_reserve
from perseus_ds.plan.select import faster_plan, gap_in_words
from perseus_ds.profile import Profile
from perseus_ds.profile.loads import LoadFit
from perseus_ds.profile.records import Computation
from perseus_ds.run_directory.records import Summary, write_summary, write_timelines
from perseus_ds.runtime.accounting import Mode, RankBooks, RankReport
from perseus_ds.runtime.channel import IterationPacer
from perseus_ds.runtime.clocks import ClockSchedules
from perseus_ds.runtime.context import JobContext, profile_in
from perseus_ds.runtime.event_log import StragglerReporter, log_troubles
from perseus_ds.runtime.phases import ActivePlan, Running
from perseus_ds.runtime.recorder import Arrivals
from perseus_ds.runtime.summaries import (
    BESIDE_A_STRAGGLER,
    beside_stragglers,
    skipped_steps,
    summarise,
    timelines,
    worth,
    write_ranks,
)
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans

# What the log states of a plan, and what was found when it was measured, in one line each.

_MOST_OVERRUNS = 0.01
_MOST_SLOWER_PCT = 0.2
"""Share by which an iteration may last longer than planned before it is reported."""
_OTHER_K = 10.0
"""Change by which energies are off by some 1 %."""


def too_slow(reports: Sequence[RankReport]) -> str:
    """Report that a host could not keep up with the GPUs that it simulates; empty where it could."""
    worst = max(report.overrun_share for report in reports)
    if worst <= _MOST_OVERRUNS:
        return ""
    return (
        f"no saving is claimed: {100.0 * worst:.1f} % of the computations took this host longer than the "
        'simulated GPU; set simulated.time to "virtual", or a larger simulated.time_scale'
    )


def contradiction(summary: Summary, plan_error_pct: float, *, paced: bool = False) -> str:
    """Return a line where measurement and plan differ by more than their errors; else "".

    ``paced``: replicas were paced by loads, which saves more; what is expected does not count it.
    """
    within = summary.saving_within_pct
    if within is None:
        return ""
    apart = summary.saving_pct - summary.predicted_saving_pct
    allowed = within + plan_error_pct
    if abs(apart) <= allowed or (paced and apart > 0.0):
        return ""
    return (
        f"the measurement contradicts the plan, which promised {summary.predicted_saving_pct:.1f} %: "
        f"{abs(apart):.1f} points {'more' if apart > 0 else 'less'}, where {allowed:.1f} can be chance; "
        "remove profile.json and the plan to measure again, in longer windows (perseus.profile.min_window_s)"
    )


def slower(summary: Summary, planned_pct: float, reserve_pct: float, *, within_pct: float = 0.0) -> str:
    """Report that iterations last longer than planned, beyond both errors, and what helps; else nothing."""
    within = summary.slowdown_within_pct
    if within is None:
        return ""
    longer = summary.slowdown_pct - max(planned_pct, 0.0)
    if longer - within - within_pct <= _MOST_SLOWER_PCT:
        return ""
    better_pct = max(2.0, 2.0 * reserve_pct)
    return (
        f"iterations last {longer:.2f} % longer than planned: durations vary by more than the"
        f" reserve of {reserve_pct:g} %; objective.reserve_pct {better_pct:g} would keep more,"
        " for less saving. Where iterations were as planned before, remove profile.json and the plan to"
        " measure again"
    )


def other_temperature(
    profile: Profile, reports: Sequence[RankReport], stages: Sequence[Sequence[int]]
) -> str:
    """Report that GPUs at default clocks are as warm as none was in the profile; empty where they are alike.

    Shape: ``stages`` [pipeline ranks], the model stages of each.
    """
    for report in reports:
        profiled_c = [
            point.temperature_c
            for (stage, _), points in profile.points.items()
            if stage in stages[report.pipeline_rank]
            for point in points
            if point.temperature_c is not None
        ]
        now_c = report.temperature_c.get(Mode.BASELINE)
        if now_c is None or not profiled_c or abs(now_c - fmean(profiled_c)) <= _OTHER_K:
            continue
        return (
            f"temperature_c of the profile is {fmean(profiled_c):.0f} degrees C, and the GPU of rank "
            f"{report.rank} is at {now_c:.0f}: expected energies may be off by a percent or more; "
            "remove profile.json and the plan to measure again"
        )
    return ""


def with_error(value_pct: float, within_pct: float | None, *, decimals: int = 2, signed: bool = False) -> str:
    """Write a percentage with half of its 95 % interval."""
    rounded = round(value_pct, decimals) + 0.0
    number = f"{rounded:+.{decimals}f}" if signed else f"{rounded:.{decimals}f}"
    return f"{number} %" if within_pct is None else f"{number} +- {within_pct:.{decimals}f} %"


def power_cap_line(power_w: float | None, cost: Mapping[str, float]) -> tuple[str, dict[str, object]]:
    """Return the line and the facts of a power cap that has come, changed or ended.

    ``cost`` is that of the plan below it (`ActivePlan.power_cap_cost`), empty while no plan runs.
    """
    if power_w is None:
        return "no power cap holds any more", {"power_w": None}
    facts: dict[str, object] = {"power_w": power_w, **cost}
    told = f"power cap of {power_w:.0f} W for the job"
    if not cost:
        return f"{told}: not held yet, no plan runs", facts
    if cost["plan_w"] > power_w:
        told += " cannot be held"
    return (
        f"{told}: plan {cost['plan']} takes {cost['plan_w']:.0f} W, {cost['slowdown_pct']:.1f} % slower",
        facts,
    )


_FEWEST = 10
"""Iterations on either side below which a measurement is called early."""
_DRIFT_PCT = 1.0
"""Of a saving: windows of a profile are measured one after the other, while GPUs warm up and cool down."""

LEAST_EXPLAINED = 0.5
"""Share of how durations vary that loads have to explain, in the mean of all computations."""


class PlannedRun:
    """The frontier of plans, the one that is chosen of it, and its audits.

    ``context`` is of batches of one size, which ``named`` names where there are several. ``books`` and
    ``summaries`` (by size, on rank 0) are of batches of all sizes; figures are sums over all audits so far.
    ``loads_known``: this rank knows loads before iterations begin.
    """

    def __init__(
        self,
        context: JobContext,
        text: str,
        *,
        named: str,
        books: RankBooks,
        summaries: dict[int, Summary],
        arrivals: Arrivals,
        waits: bool = False,
        loads_known: bool = False,
    ) -> None:
        self._context = context
        self._plans = loads(text)
        self._named = named
        self._books, self._summaries, self._arrivals = books, summaries, arrivals
        self._waits, self._loads_known = waits, loads_known
        self._answers_ended = False

    def phase(self) -> Running:
        """Run the plan from now on; collective.

        Raises:
            PlanError: a clock that a rank's GPU does not have; alike on all.
        """
        context, audit = self._context, self._context.config.audit
        rank, able, where = context.job.pipeline_rank, context.capabilities, context.directory.path
        context.channel.gather_results(lambda: check_clocks(self._plans, rank, able, where=where))
        self._profile: Profile | None = context.channel.broadcast_result(lambda: profile_in(context))
        active_plan = self._choose()
        self._log_doubts()
        return Running(
            active_plan,
            self.audit,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            settling=math.ceil(audit.settle_s / self._plan.iteration_time_s),
        )

    def audit(self) -> ActivePlan | None:
        """Bring what was measured to rank 0, which writes it down, and end what makes the job slower.

        That is answers to stragglers, and pacing by loads. Returns the plan without pacing where a paced job
        was measured slower, or a faster plan with dates; collective.
        """
        context = self._context
        reports = context.channel.gather(self._books.report(context.job), to_first=True)
        if context.channel.broadcast_result(lambda: self._publish(reports)):
            self._active_plan.end_answers()
        summary = self._summaries.get(context.job.schedule.microbatches)
        if not self._paced:
            return self._faster(summary) if self._plans.budget.dated else None
        expected_pct = max(0.0, self._expected.slowdown_pct)
        allowed_pct = expected_pct + context.config.straggler.max_cost_pct
        why: str = context.channel.broadcast_result(
            lambda: "" if summary is None else why_ended(summary, allowed_pct=allowed_pct)
        )
        if not why:
            return None
        self._event("paced_no_more", f"not paced by loads any more: {why}")
        self._books.forget_plan(context.job)
        return self._choose(paced=False)

    def _faster(self, summary: Summary | None) -> ActivePlan | None:
        """Choose a faster plan with dates where iterations last longer than allowed; collective."""
        context, plan = self._context, self._plan

        def following_plan() -> int:
            if (
                summary is None
                or summary.facts["plan"] != plan.index
                or summary.facts.get(BESIDE_A_STRAGGLER)
            ):
                return plan.index
            allowed_pct = context.config.objective.max_slowdown_pct or 0.0
            return faster_plan(self._plans, plan.index, summary.slowdown_pct, allowed_pct)

        following: int = context.channel.broadcast_result(following_plan)
        if following == plan.index:
            return None
        self._event(
            "faster_plan",
            f"iterations are slower than objective.max_slowdown_pct: plan {following} follows",
            plan=following,
        )
        self._books.forget_plan(context.job)
        return self._choose(paced=False, following=following)

    def _choose(self, *, paced: bool | None = None, following: int | None = None) -> ActivePlan:
        """Choose plans, and whether replicas are paced by loads where that was not decided; collective.

        This stage's part of every plan is prepared, and the watch over replicas where there are several.
        """
        context, plans, behind = self._context, self._plans, self._arrivals.behind
        job, answers, objective = context.job, context.config.straggler, context.config.objective
        plan = self._plan = select(plans, objective) if following is None else plans.plan(following)
        if paced is None:
            fits = {} if self._profile is None else self._profile.loads
            paced = is_paced(context, fits, loads_known=self._loads_known, named=self._named)
        self._paced, self._expected = paced, expected_of(context, plan)
        self._log_running()
        self._arrivals.expect(plans.fixed_s)
        index, change = FrontierIndex.of(plans, objective), context.reckoning.change
        index = replace(index, objective=plan.index)
        replica_plans: ReplicaPlans | None = None
        reporter: StragglerReporter | None = None
        pacer: IterationPacer | None = None
        several = job.replicas > 1 and answers.enabled
        if several:
            profile, forecast = self._profile, None
            if paced and profile is not None:
                forecast = Forecast(plans, plan.index, profile)
            replica_plans = ReplicaPlans(
                index,
                job.replicas,
                max_cost_pct=answers.max_cost_pct,
                reaction_delay=2 + behind,
                forecast_error=None if forecast is None else forecast.error,
            )
            reporter = StragglerReporter(context.log, plans, gpus=job.gpus, names=job.names)
            if forecast is not None:
                pacer = IterationPacer(
                    replica_plans,
                    context.channel.side(),
                    forecast,
                    replicas=job.replicas,
                    replica=job.replica,
                    waits=self._waits,
                    speaks=job.pipeline_rank == 0,
                )
        self._active_plan = ActivePlan(
            ClockSchedules(plans, pipeline_rank=job.pipeline_rank, change=change),
            index,
            replica=job.replica,
            replica_plans=replica_plans,
            reporter=reporter,
            pacer=pacer,
            behind=behind if several else 0,
            pipelines=job.ranks // job.schedule.ranks,
        )
        return self._active_plan

    # ---- what the log and the files of rank 0 state of it ----

    def _event(self, event: str, line: str, **facts: object) -> None:
        self._context.log.event(event, f"{self._named}{line}", **facts)

    def _log_doubts(self) -> None:
        """Report doubts about the frontier of plans."""
        plans, job = self._plans, self._context.job
        if doubtful := doubt(plans):
            self._event("doubtful", doubtful)
        if job.replayed:
            most_pct = 100.0 * (1.0 - float(plans.lower_bound_j[0]) / plans.baseline.energy_j)
            policy = self._context.config.objective.policy
            more = ", where one clock saves hardly anything: set objective.policy to max_slowdown"
            kept = (
                "changes its clock at two moments at most of" if plans.budget.dated else "keeps one clock for"
            )
            self._event(
                "one_clock",
                f"every GPU {kept} an iteration; with a clock for each computation at most "
                f"{most_pct:.1f} % would be saved without slowdown{more if policy == 'no_slowdown' else ''}",
                most_saving_pct=most_pct,
            )
        elif plans.change.longest_s >= plans.t_min_s:
            self._event(
                "one_clock",
                f"a change of clock takes {plans.change.longest_s:.3g} s and the fastest "
                f"iteration {plans.t_min_s:.3g} s: every GPU keeps one clock",
            )
        if short := too_little_reserve(plans):
            self._event(
                "reserve",
                short,
                reserve_pct=plans.reserve_pct,
                variation_slowdown_pct=plans.variation_slowdown_pct,
            )

    def _log_running(self) -> None:
        """Report the plan that is run, and what is expected of it."""
        plan, expected, plans = self._plan, self._expected, self._plans
        self._event(
            "running",
            f"running plan {plan.index} of {len(plans)} (0 is the fastest): "
            f"{plan.iteration_time_s:.4g} s per iteration{self._context.whose_time} "
            f"({with_error(expected.slowdown_pct, expected.slowdown_within_pct, signed=True)} expected), "
            f"saves {with_error(expected.saving_pct, expected.within_pct, decimals=1)}, "
            f"{gap_in_words(float(plans.gap_pct[plan.index]))}",
            plan=plan.index,
            microbatches=self._context.job.schedule.microbatches,
            iteration_time_s=plan.iteration_time_s,
            reserve_pct=plans.reserve_pct,
            planned_saving_pct=plan.saving_pct,
            predicted_saving_pct=expected.saving_pct,
            predicted_saving_within_pct=expected.within_pct,
            predicted_slowdown_pct=expected.slowdown_pct,
            predicted_slowdown_within_pct=expected.slowdown_within_pct,
            gap_pct=float(plans.gap_pct[plan.index]),
            solve_time_s=plans.solve_time_s,
        )

    def _publish(self, reports: Sequence[RankReport]) -> bool:
        """Write what was measured, once both sides were; return whether answers to stragglers are to end."""
        context, job, log = self._context, self._context.job, self._context.log
        log_troubles(log, {one.rank: one.troubles for one in reports})
        if line := too_slow(reports):
            log.event("too_slow", line)
            return False
        facts = self._facts() | beside_stragglers(reports) | skipped_steps(reports)
        facts |= self._active_plan.answers
        summary = summarise(reports, self._expected.saving_pct, simulated=context.simulated, facts=facts)
        if summary is None:
            return False
        summary = replace(summary, facts={**summary.facts, **worth(summary, reports, job)})
        drawn = timelines(reports, self._plan, job, simulated=context.simulated)
        directory = context.directory
        log.write(directory.summary, lambda: write_summary(summary, directory.summary))
        log.write(directory.timelines, lambda: write_timelines(drawn, directory.timelines))
        log.write(directory.path, lambda: write_ranks(reports, directory, run=log.run))
        self._log_measured(summary)
        self._log_findings(reports, summary)
        if not self._summaries:
            self._compare_temperatures(reports)
        self._summaries[job.schedule.microbatches] = summary
        return self._cost_too_much(summary)

    def _facts(self) -> dict[str, object]:
        job, plan, expected = self._context.job, self._plan, self._expected
        return {
            "run": self._context.log.run,
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
            "objective": self._context.config.objective.policy,
        }

    def _log_measured(self, summary: Summary) -> None:
        fewest = min(summary.perseus.iterations, summary.baseline.iterations)
        early = "early figure, " if fewest < _FEWEST else ""
        beside = " beside a straggler" if summary.facts.get(BESIDE_A_STRAGGLER) else ""
        self._event(
            "measured",
            f"measured{beside}: {early}"
            f"{with_error(summary.saving_pct, summary.saving_within_pct, decimals=1)} energy saved, "
            f"iteration time {with_error(summary.slowdown_pct, summary.slowdown_within_pct, signed=True)} "
            f"({summary.perseus.iterations} iterations at the plan, "
            f"{summary.baseline.iterations} at default clocks)",
            microbatches=self._context.job.schedule.microbatches,
            saving_pct=summary.saving_pct,
            saving_se_pct=summary.saving_se_pct,
            slowdown_pct=summary.slowdown_pct,
            slowdown_se_pct=summary.slowdown_se_pct,
        )

    def _log_findings(self, reports: Sequence[RankReport], summary: Summary) -> None:
        """Report what is not as it should be."""
        expected, plans = self._expected, self._plans
        counts = {report.rank: report.clock_requests for report in reports}
        late = {rank: line for rank, one in counts.items() if (line := one.missed_note())}
        if late:
            rank = max(late, key=lambda one: counts[one].missed)
            self._event("late_clocks", f"rank {rank}: {late[rank]}", ranks=list(late))
        if summary.facts.get(BESIDE_A_STRAGGLER):
            return  # how long iterations last, and what waiting takes, is the straggler's doing
        answers = summary.facts.get("answers")
        paced = isinstance(answers, Mapping) and bool(answers.get("paced_iterations"))
        if line := contradiction(summary, _DRIFT_PCT + expected.within_pct, paced=paced):
            self._event("contradicted", line)
        if plans.budget.dated and self._plan.index > 0:
            return  # a faster plan follows
        planned_pct, within_pct = expected.slowdown_pct, expected.slowdown_within_pct
        if line := slower(summary, planned_pct, plans.reserve_pct, within_pct=within_pct):
            self._event("slower", line, slowdown_pct=summary.slowdown_pct)

    def _compare_temperatures(self, reports: Sequence[RankReport]) -> None:
        """Hold the first audit's temperatures against the profile's, where there is one."""
        orders = self._context.job.schedule.orders
        stages = [sorted({one.stage for one in order if one.kind.is_computation}) for order in orders]
        known = self._profile
        if known is not None and (line := other_temperature(known, reports, stages)):
            self._context.log.event("other_temperature", line)

    def _cost_too_much(self, summary: Summary) -> bool:
        """Report answers to stragglers that cost more time than they may; once."""
        if self._answers_ended or not summary.facts.get(BESIDE_A_STRAGGLER):
            return False
        slower_pct, within_pct = summary.slowdown_pct, summary.slowdown_within_pct
        most_pct = self._context.config.straggler.max_cost_pct
        if within_pct is None or slower_pct - within_pct <= most_pct:
            return False
        self._answers_ended = True
        self._event(
            "answers_ended",
            f"beside a straggler, iterations last {with_error(slower_pct, within_pct, signed=True)} "
            f"longer than at default clocks, where straggler.max_cost_pct allows {most_pct:g} %: nobody is "
            "slowed for a straggler any more",
            slowdown_pct=slower_pct,
        )
        return True


def expected_of(context: JobContext, plan: FrequencyPlan) -> Expected:
    """Saving and slowdown to hold a measurement against; the plan's own where its profile is not there.

    The planner has worked it out, beside the training, for as many replicas and this objective. Else rank 0
    does: the run directory is its own.
    """
    known = plan.of.expected.get(plan.index)
    if known is not None and plan.of.fingerprint.get("replicas") == str(context.job.replicas):
        return known
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    profile = profile_in(context) if context.job.rank == 0 else None
    if profile is None or not profile.blocking_w:
        return own
    change, replicas = context.reckoning.change, context.job.replicas
    return expected(plan, profile, change, variation=profile.variation(), replicas=replicas)


def is_paced(
    context: JobContext, fits: Mapping[Computation, LoadFit], *, loads_known: bool, named: str
) -> bool:
    """Return whether replicas are paced: all know their loads beforehand, and these explain durations.

    Collective where durations follow loads (``fits``) and there are several replicas; then one line states
    what was chosen. ``loads_known``: this rank knows loads before an iteration begins.
    """
    job, settings = context.job, context.config.straggler
    if job.replicas == 1 or not settings.enabled or settings.pacing == "never" or not fits:
        return False
    everyone = context.channel.gather((job.replica, job.pipeline_rank, loads_known))
    unknown = sorted({replica for replica, rank, knows in everyone if rank == 0 and not knows})
    explained = fmean(fit.r2 for fit in fits.values())
    why = ""
    if unknown:
        why = (
            "the loads of an iteration are not known before it begins (replica "
            f"{', '.join(map(str, unknown))}); straggler.loads can change that"
        )
    elif explained < LEAST_EXPLAINED:
        why = f"loads explain {100.0 * explained:.0f} % of how durations vary, less than half"
    line = f"not paced by loads: {why}" if why else "replicas are paced by the loads of their microbatches"
    context.log.event("pacing_choice", f"{named}{line}", on=not why)
    return not why


def why_ended(summary: Summary, *, allowed_pct: float) -> str:
    """Return why pacing ends: iterations are slower than allowed, beyond errors; empty where it goes on."""
    within = summary.slowdown_within_pct
    if within is None or summary.slowdown_pct - within <= allowed_pct:
        return ""
    slower = with_error(summary.slowdown_pct, within, signed=True)
    return f"iteration time {slower} measured, {allowed_pct:+.2f} % allowed"


def check_clocks(plans: PlanSet, rank: int, able: Capabilities, *, where: Path) -> None:
    """Compare what a plan would ask a rank's GPU for with what that GPU has, before anything is asked.

    Raises:
        PlanError: naming the clock.
    """
    wanted = {
        segment[:2]
        for key in {(i.stage, i.kind) for _, i in plans.computations_of(rank)}
        for option in range(len(plans.options[key].time_s))
        for segment in plans.options[key].segments(option)
    }
    if plans.wait_clock is not None:
        wanted.add((plans.wait_clock.clock_mhz, None))
    for clock_mhz, memory_mhz in wanted:
        if clock_mhz not in able.clocks_mhz or memory_mhz not in {None, *able.memory_clocks_mhz}:
            memory = "" if memory_mhz is None else f" and a memory clock of {memory_mhz} MHz"
            raise PlanError(
                f"the plan in {where} asks rank {rank} for {clock_mhz} MHz{memory}; its GPU has {able.grid}",
                hint="remove the plan, and the job makes one of its own",
            )
