"""Batches of one size at their plan: chosen by the objective, audited, and chosen anew for a limit missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.device import Capabilities
from perseus_ds.errors import PlanMismatchError
from perseus_ds.plan import Expected, FrequencyPlan, PlanSet, expected, loads, select
from perseus_ds.plan.following import Setup, why_not
from perseus_ds.profile import Computation, LoadFit, Profile
from perseus_ds.runtime.comm.progress import ProgressExchange
from perseus_ds.runtime.control.active_plan import ActivePlan, ReplicaWatch
from perseus_ds.runtime.control.clock_schedules import ClockSchedules
from perseus_ds.runtime.control.iteration_pacer import IterationPacer, looks_at
from perseus_ds.runtime.control.load_follower import LoadFollower
from perseus_ds.runtime.control.peer_answers import PeerAnswers
from perseus_ds.runtime.lifecycle.auditing import Audits
from perseus_ds.runtime.lifecycle.findings import PlanLines
from perseus_ds.runtime.lifecycle.following import follower_of, members_of
from perseus_ds.runtime.lifecycle.job_context import JobContext, profile_in
from perseus_ds.runtime.lifecycle.pacing_choice import PacingChoice, chosen_for, ended
from perseus_ds.runtime.lifecycle.phases import Running
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.observe.straggler_reporter import StragglerReporter
from perseus_ds.straggler import Forecast, FrontierIndex, ReplicaPlans

_Told = tuple[int, int, str | None]  # replica, pipeline rank, why it cannot follow loads


@dataclass(frozen=True, slots=True)
class PlanWatchers:
    """What watches the plans that this rank runs, for batches of every size.

    ``audits`` measure what a plan saves, ``arrivals`` when computations come. ``peers`` are there where ranks
    meet others within computations.
    """

    audits: Audits
    arrivals: Arrivals
    peers: PeerAnswers | None = None


class PlannedRun:
    """The frontiers of all groups, and what is chosen of them.

    ``context`` is of batches of one size, which ``named`` names where there are several. What is audited is
    held against the first group's plan. ``loads_known``: this rank knows loads before iterations begin.

    Shape: ``frontiers`` [groups].
    """

    def __init__(
        self,
        context: JobContext,
        texts: Sequence[str],
        *,
        named: str,
        watchers: PlanWatchers,
        waits: bool = False,
        loads_known: bool = False,
    ) -> None:
        self._context = context
        self._frontiers = [loads(text) for text in texts]
        self._named = named
        self._lines = PlanLines(context, named)
        self._audits, self._arrivals = watchers.audits, watchers.arrivals
        self._peers = watchers.peers
        self._waits, self._loads_known = waits, loads_known

    def phase(self) -> Running:
        """Run this rank's group's plan from now on; collective.

        Raises:
            PlanMismatchError: a clock that a rank's GPU does not have; alike on all.
        """
        context, audit = self._context, self._context.config.audit
        own = self._frontiers[context.job.group]
        rank, able, where = context.job.pipeline_rank, context.capabilities, context.directory.path
        context.channel.gather_results(lambda: check_clocks(own, rank, able, where=where))
        self._fits = self._all_fits()
        self._chosen = self._choose(context.config.objective)
        for plans in self._frontiers:
            self._lines.doubts(plans)
        return Running(
            self._chosen.active_plan,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=self._audited,
            settling=math.ceil(audit.settle_s / self._chosen.plan.iteration_time_s),
        )

    def _audited(self) -> ActivePlan | None:
        """Publish an audit; return another plan where the objective's limit is missed and one is nearer."""
        chosen = self._chosen
        other, costs = self._audits.audit(
            self._context, chosen.plan, chosen.expected, named=self._named, answers=chosen.active_plan.answers
        )
        if costs:
            chosen.active_plan.end_answers()
        if other is None:
            return self._paced_no_more()
        self._chosen = self._choose(other)
        self._audits.forget_plan(self._context.job)
        return self._chosen.active_plan

    def _paced_no_more(self) -> ActivePlan | None:
        """Return the plan without pacing by loads, where a job that paced itself is not better off by it."""
        context = self._context
        summary = self._audits.summaries.get(context.job.schedule.microbatches)
        if not ended(context, self._choice, summary, named=self._named):
            return None
        self._chosen = self._choose(self._objective, PacingChoice(on=False))
        self._audits.forget_plan(context.job)
        return self._chosen.active_plan

    def _choose(self, objective: Objective, choice: PacingChoice | None = None) -> _Chosen:
        """Choose plans, and whether iterations follow their loads where that was not decided; collective."""
        job = self._context.job
        self._objective = objective
        plans = [select(one, objective) for one in self._frontiers]
        self._choice = choice or chosen_for(
            self._context, plans[0], self._fits[0], loads_known=self._loads_known, named=self._named
        )
        paced = self._choice.on
        hopes = [expected_of(self._context, plan, group, paced=paced) for group, plan in enumerate(plans)]
        for group, plan in enumerate(plans):
            self._lines.running(plan, hopes[group], job.groups[group].replicas if job.mixed else ())
        return _Chosen(plans[0], hopes[0], self._active(plans[job.group], objective))

    def _all_fits(self) -> list[Mapping[Computation, LoadFit]]:
        """How durations follow loads, as the profile of every group has it; collective."""
        fits: list[Mapping[Computation, LoadFit]] = self._context.channel.broadcast_result(
            lambda: [
                {} if (known := profile_in(self._context, group)) is None else dict(known.loads)
                for group in range(len(self._frontiers))
            ]
        )
        return fits

    def _active(self, plan: FrequencyPlan, objective: Objective) -> ActivePlan:
        """Prepare this stage's part of every plan, and the watch over replicas where there are several."""
        job, answers = self._context.job, self._context.config.straggler
        schedules, profiles = self._schedules(self._frontiers[job.group]), self._profiles()
        indexes = [FrontierIndex.of(one, objective) for one in self._frontiers]
        every = [indexes[job.group_of(replica)] for replica in range(job.replicas)]
        pipelines = job.ranks // job.schedule.ranks
        if job.replicas == 1 or not answers.enabled:
            return ActivePlan(
                schedules,
                plan,
                replica=job.replica,
                peers=self._peers,
                indexes=every,
                pipelines=pipelines,
                follower=self._follower(plan, profiles, marks=(-1,)),
            )
        forecast = None if profiles is None else self._forecast(indexes, profiles)
        return self._beside_others(schedules, plan, every, (forecast, profiles))

    def _beside_others(
        self,
        schedules: ClockSchedules,
        plan: FrequencyPlan,
        every: Sequence[FrontierIndex],
        foreknown: tuple[Forecast | None, Sequence[Profile | None] | None],
    ) -> ActivePlan:
        """Prepare the watch over all replicas; collective."""
        job, behind, (forecast, profiles) = self._context.job, self._arrivals.behind, foreknown
        groups = [job.group_of(replica) for replica in range(job.replicas)]
        plans = ReplicaPlans(
            every,
            max_cost_pct=self._context.config.straggler.max_cost_pct,
            exposed=2 + behind,
            marks=None if forecast is None else forecast.marks,
            by_loads=self._choice.on and forecast is not None and forecast.tells,
        )
        frontiers = [self._frontiers[group] for group in groups]
        reporter = StragglerReporter(self._context.log, frontiers, job.gpus, job.names)
        pacer = None if forecast is None else self._pacer(plans, forecast, every)
        return ActivePlan(
            schedules,
            plan,
            replica=job.replica,
            watch=ReplicaWatch(plans, reporter, pacer, behind),
            follower=self._follower(plan, profiles, marks=() if forecast is None else forecast.marks.after),
            peers=self._peers,
            indexes=every,
            pipelines=job.ranks // job.schedule.ranks,
        )

    def _schedules(self, own: PlanSet) -> ClockSchedules:
        """Prepare this stage's part of every plan of its replica."""
        able = self._context.capabilities
        self._arrivals.expect(own.fixed_s)
        if self._peers is not None:
            self._peers.expect(own)
        return ClockSchedules(
            own,
            pipeline_rank=self._context.job.pipeline_rank,
            change=self._context.reckoning.change,
            clocks_mhz=able.clocks_mhz,
        )

    def _profiles(self) -> Sequence[Profile | None] | None:
        """Every group's profile, on all ranks; None where nothing is foretold. Collective."""
        answers = self._context.config.straggler
        alone = self._context.job.replicas == 1
        if not answers.enabled or answers.pacing == "never" or (alone and not self._choice.on):
            return None
        return self._context.channel.broadcast_result(
            lambda: [profile_in(self._context, one) for one in range(len(self._frontiers))]
        )

    def _forecast(self, indexes: Sequence[FrontierIndex], profiles: Sequence[Profile | None]) -> Forecast:
        """Foretell this rank's replica, with marks that are the same on all ranks."""
        group = self._context.job.group
        first = Forecast(self._frontiers[0], indexes[0].objective, profiles[0])
        marks = first.marks.first() if self._arrivals.behind else first.marks
        return Forecast(self._frontiers[group], indexes[group].objective, profiles[group], marks)

    def _follower(
        self, plan: FrequencyPlan, profiles: Sequence[Profile | None] | None, *, marks: Sequence[int]
    ) -> LoadFollower | None:
        """Have this rank run plans that follow loads, where they can and are known; collective."""
        context, job, own = self._context, self._context.job, self._frontiers[self._context.job.group]
        if profiles is None or not self._choice.on:
            return None
        profile = profiles[job.group]
        why = why_not(
            own,
            profile,
            splits=context.config.objective.split == "auto",
        )
        told = context.channel.gather((job.replica, job.pipeline_rank, why))
        why = next((one[2] for one in cast("list[_Told]", told) if one[2] is not None), None)
        if why is not None or profile is None:
            context.log.event("not_followed", f"{self._named}plans do not follow loads: {why}", reason=why)
            return None
        return follower_of(
            context,
            Setup(own, profile, plan.index, context.reckoning.change, tuple(marks)),
            members_of(job.replica, [one[:2] for one in cast("list[_Told]", told)]),
            waits=self._waits,
        )

    def _pacer(
        self, replica_plans: ReplicaPlans, forecast: Forecast, every: Sequence[FrontierIndex]
    ) -> IterationPacer:
        """Have this rank report and read reports within iterations; collective."""
        job, marks = self._context.job, forecast.marks
        exchange = ProgressExchange(
            self._context.channel.side_group(),
            marks=len(marks.share),
            replicas=job.replicas,
            replica=job.replica,
            waits=self._waits,
        )
        return IterationPacer(
            replica_plans,
            exchange,
            forecast,
            looks=looks_at(self._frontiers[0].schedule, marks, job.pipeline_rank),
            speaks=job.pipeline_rank == 0,
            usual_s=np.array([index.objective_s for index in every]),
            by_loads=self._choice.on,
        )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The first group's plan by the objective and what is expected of it; and this rank's, in force."""

    plan: FrequencyPlan
    expected: Expected
    active_plan: ActivePlan


def expected_of(context: JobContext, plan: FrequencyPlan, group: int, *, paced: bool) -> Expected:
    """Saving and slowdown to hold a measurement against; the plan's own where its profile is not there.

    The planner has worked it out, beside the training, for as many replicas and this objective. Else rank 0
    does: the run directory is its own. ``paced``: iterations follow their loads, which is counted as far as
    the planner knows it.
    """
    known, by_loads = plan.of.expected.get(plan.index), plan.of.by_loads.get(plan.index)
    if by_loads is not None and paced:
        known = by_loads
    if known is not None and plan.of.fingerprint.get("replicas") == str(context.job.replicas):
        return known
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    profile = profile_in(context, group) if context.job.rank == 0 else None
    if profile is None or not profile.blocking_w:
        return own
    change, replicas = context.reckoning.change, context.job.replicas
    return expected(plan, profile, change, variation=profile.variation(), replicas=replicas)


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
