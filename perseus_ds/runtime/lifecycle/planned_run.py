"""Batches of one size at their plan: chosen by the objective, and audited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

from perseus_ds.config import Objective
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PlanMismatchError
from perseus_ds.plan import Expected, FrequencyPlan, PlanSet, expected, loads, select
from perseus_ds.profile import Computation, LoadFit, Profile
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.comm.load_exchange import LoadExchange
from perseus_ds.runtime.control.active_plan import ActivePlan, ReplicaWatch
from perseus_ds.runtime.control.clock_schedules import ClockSchedules
from perseus_ds.runtime.control.iteration_pacer import IterationPacer
from perseus_ds.runtime.event_log import StragglerReporter
from perseus_ds.runtime.lifecycle.auditing import Audits
from perseus_ds.runtime.lifecycle.findings import PlanLines, with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext, profile_in
from perseus_ds.runtime.lifecycle.phases import Running
from perseus_ds.runtime.recorder import Arrivals
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans

_Knows = tuple[int, int, bool]  # replica, pipeline rank, whether it knows loads

LEAST_EXPLAINED = 0.5
"""Share of how durations vary that loads have to explain, in the mean of all computations."""


@dataclass(frozen=True, slots=True)
class PlanWatchers:
    """What watches the plans that this rank runs, for batches of every size.

    ``audits`` measure what a plan saves, ``arrivals`` when computations come.
    """

    audits: Audits
    arrivals: Arrivals


class PlannedRun:
    """The frontier of plans, and the one that is chosen of it.

    ``context`` is of batches of one size, which ``named`` names where there are several.
    ``loads_known``: this rank knows loads before iterations begin.
    """

    def __init__(
        self,
        context: JobContext,
        text: str,
        *,
        named: str,
        watchers: PlanWatchers,
        waits: bool = False,
        loads_known: bool = False,
    ) -> None:
        self._context = context
        self._plans = loads(text)
        self._named = named
        self._lines = PlanLines(context, named)
        self._audits, self._arrivals = watchers.audits, watchers.arrivals
        self._waits, self._loads_known = waits, loads_known

    def phase(self) -> Running:
        """Run the plan from now on; collective.

        Raises:
            PlanMismatchError: a clock that a rank's GPU does not have; alike on all.
        """
        context, audit = self._context, self._context.config.audit
        rank, able, where = context.job.pipeline_rank, context.capabilities, context.directory.path
        context.channel.gather_results(lambda: check_clocks(self._plans, rank, able, where=where))
        self._fits = self._known_fits()
        self._chosen = self._choose()
        self._lines.doubts(self._plans)
        return Running(
            self._chosen.active_plan,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=self._audited,
            settling=math.ceil(audit.settle_s / self._chosen.plan.iteration_time_s),
        )

    def _audited(self) -> ActivePlan | None:
        """Publish an audit, and go on without what makes the job slower."""
        chosen = self._chosen
        costs_too_much = self._audits.audit(
            self._context, chosen.plan, chosen.expected, named=self._named, answers=chosen.active_plan.answers
        )
        if costs_too_much:
            chosen.active_plan.end_answers()
        return self._paced_no_more()

    def _paced_no_more(self) -> ActivePlan | None:
        """Return the plan without pacing by loads, where an audit shows a paced job slower; collective."""
        context = self._context
        if not self._paced:
            return None
        summary = self._audits.summaries.get(context.job.schedule.microbatches)
        expected_pct = max(0.0, self._chosen.expected.slowdown_pct)
        allowed_pct = expected_pct + context.config.straggler.max_cost_pct
        why: str = context.channel.broadcast_result(
            lambda: "" if summary is None else why_ended(summary, allowed_pct=allowed_pct)
        )
        if not why:
            return None
        context.log.event("paced_no_more", f"{self._named}not paced by loads any more: {why}")
        self._chosen = self._choose(paced=False)
        self._audits.forget_plan(context.job)
        return self._chosen.active_plan

    def _choose(self, *, paced: bool | None = None) -> _Chosen:
        """Choose plans, and whether replicas are paced by loads where that was not decided; collective."""
        objective = self._context.config.objective
        plan = select(self._plans, objective)
        if paced is None:
            paced = is_paced(self._context, self._fits, loads_known=self._loads_known, named=self._named)
        self._paced = paced
        hope = expected_of(self._context, plan)
        self._lines.running(plan, hope)
        return _Chosen(plan, hope, self._active(plan, objective))

    def _known_fits(self) -> Mapping[Computation, LoadFit]:
        """How durations follow loads by the profile; collective."""
        fits: Mapping[Computation, LoadFit] = self._context.channel.broadcast_result(
            lambda: {} if (known := profile_in(self._context)) is None else dict(known.loads)
        )
        return fits

    def _active(self, plan: FrequencyPlan, objective: Objective) -> ActivePlan:
        """Prepare this stage's part of every plan, and the watch over replicas where there are several."""
        job, answers = self._context.job, self._context.config.straggler
        schedules = self._schedules()
        every = [FrontierIndex.of(self._plans, objective)] * job.replicas
        pipelines = job.ranks // job.schedule.ranks
        if job.replicas == 1 or not answers.enabled:
            return ActivePlan(schedules, plan, replica=job.replica, indexes=every, pipelines=pipelines)
        return self._beside_others(schedules, plan, every)

    def _beside_others(
        self,
        schedules: ClockSchedules,
        plan: FrequencyPlan,
        every: Sequence[FrontierIndex],
    ) -> ActivePlan:
        """Prepare the watch over all replicas; collective."""
        job, behind = self._context.job, self._arrivals.behind
        forecast = self._forecast(every[0].objective)
        plans = ReplicaPlans(
            every,
            max_cost_pct=self._context.config.straggler.max_cost_pct,
            exposed=2 + behind,
            forecast_error=None if forecast is None else forecast.error,
        )
        frontiers = [self._plans] * job.replicas
        reporter = StragglerReporter(self._context.log, frontiers, job.gpus, job.names)
        pacer = None if forecast is None else self._pacer(plans, forecast)
        return ActivePlan(
            schedules,
            plan,
            replica=job.replica,
            watch=ReplicaWatch(plans, reporter, pacer, behind),
            indexes=every,
            pipelines=job.ranks // job.schedule.ranks,
        )

    def _schedules(self) -> ClockSchedules:
        """Prepare this stage's part of every plan."""
        self._arrivals.expect(self._plans.fixed_s)
        return ClockSchedules(
            self._plans,
            pipeline_rank=self._context.job.pipeline_rank,
            change=self._context.reckoning.change,
        )

    def _forecast(self, objective: int) -> Forecast | None:
        """Foretell iterations by the profile; None where replicas are not paced. Collective."""
        if not self._paced:
            return None
        profile: Profile | None = self._context.channel.broadcast_result(lambda: profile_in(self._context))
        return None if profile is None else Forecast(self._plans, objective, profile)

    def _pacer(self, replica_plans: ReplicaPlans, forecast: Forecast) -> IterationPacer:
        """Have this rank report and read reports when iterations begin; collective."""
        job = self._context.job
        exchange = LoadExchange(
            self._context.channel.side_group(),
            replicas=job.replicas,
            replica=job.replica,
            waits=self._waits,
        )
        return IterationPacer(replica_plans, exchange, forecast, speaks=job.pipeline_rank == 0)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The plan by the objective, what is expected of it, and this rank's part in force."""

    plan: FrequencyPlan
    expected: Expected
    active_plan: ActivePlan


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
    """Whether replicas are paced: all know their loads beforehand, and these explain durations.

    Collective where durations follow loads (``fits``) and there are several replicas; then one line states
    what was chosen. ``loads_known``: this rank knows loads before an iteration begins.
    """
    job, settings = context.job, context.config.straggler
    if job.replicas == 1 or not settings.enabled or settings.pacing == "never" or not fits:
        return False
    everyone = cast("list[_Knows]", context.channel.gather((job.replica, job.pipeline_rank, loads_known)))
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
        PlanMismatchError: naming the clock.
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
            raise PlanMismatchError(
                f"the plan in {where} asks rank {rank} for {clock_mhz} MHz{memory}; its GPU has {able.grid}",
                hint="remove the plan, and the job makes one of its own",
            )
