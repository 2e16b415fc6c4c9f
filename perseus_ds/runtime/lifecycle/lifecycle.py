"""From one phase to the next: what a job does between its first iteration and its last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.files import read_bounded
from perseus_ds.plan import FrequencyPlan, PlanRequest, certified, doubt, loads, select
from perseus_ds.plan.bounds import MOST_BYTES
from perseus_ds.profile import Sweep, read_profile, write_profile
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy
from perseus_ds.runtime.lifecycle.activating_plan import active_plan_of
from perseus_ds.runtime.lifecycle.auditing import audited
from perseus_ds.runtime.lifecycle.background_planner import BackgroundPlanner
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import (
    DEFAULT_CLOCK,
    Idle,
    Phase,
    Planning,
    Profiling,
    Running,
    WarmUp,
)
from perseus_ds.runtime.lifecycle.profiling import pooled, profile_of, sweeps_of
from perseus_ds.runtime.lifecycle.shown import shown
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.pooling import Pooled
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.measure.sweeps import Sweeps

_SHORT_WINDOWS = 4


class Lifecycle:
    """The present phase, and what is needed to reach the next one; ``active_plan`` is None before it runs.

    Blocking exchanges happen here alone: once per profiled clock, once when the plan arrives, once per audit,
    and where replicas have different GPUs once for their clocks.
    """

    def __init__(self, context: JobContext, start: StartDecision) -> None:
        self._context = context
        self._planner: BackgroundPlanner | None = None
        self._short_windows = 0
        self.active_plan: ActivePlan | None = None
        self._summary: Summary | None = None
        self._phase: Phase = WarmUp(
            context.config.profile.warmup_iterations, lambda iteration_s: self._open(start, iteration_s)
        )
        context.log.event("warming_up", iterations=context.config.profile.warmup_iterations)

    @property
    def clock_policy(self) -> ClockPolicy:
        """What the coming iteration is run by."""
        return self._phase.clock_policy

    @property
    def mode(self) -> Mode:
        """What the coming iteration counts for."""
        return self._phase.mode

    def advance(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> None:
        """Move on after an iteration."""
        self._phase = self._phase.following(index, passed, job_status)

    def plan_ready(self) -> bool:
        """Whether rank 0's background planner has finished."""
        return self._planner is not None and self._planner.ready()

    @property
    def rests(self) -> bool:
        """Whether clocks go to default while the host does something else between two iterations."""
        return self._phase.rests

    @property
    def stands_alone(self) -> bool:
        """Whether the present phase can go on without the other ranks."""
        return self._phase.stands_alone

    def alone(self) -> None:
        """Go on without the other ranks."""
        self._phase.alone()

    def shown(self) -> Mapping[str, float]:
        """Return the scalars of a running plan; empty before there is one."""
        return (
            {} if self.active_plan is None else shown(self.active_plan, self._context.account, self._summary)
        )

    def close(self) -> None:
        """End what still runs beside the training."""
        if self._planner is not None:
            self._planner.close()

    def _open(self, start: StartDecision, iteration_s: float) -> Phase:
        match start.action:
            case StartAction.RUN:
                return self._run(start.plans)
            case StartAction.PLAN:
                return self._planning()
            case StartAction.PROFILE:
                return self._profiling(iteration_s)
            case StartAction.OBSERVE:
                return self._observing(start, iteration_s)

    def _observing(self, start: StartDecision, iteration_s: float) -> Phase:
        """Measure one window at default clocks, say what it shows and what a plan would save."""
        context = self._context
        for text in start.plans:
            plan = select(loads(text), context.config.objective)
            context.log.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )
        if not context.watch.watching:
            return Idle()
        top = context.capabilities.clocks_mhz[:1]
        sweeps = Sweeps([Sweep(top) for _ in context.job.groups], mine=context.job.group)

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> bool:
            seen = self._pooled(clock_mhz, window)
            if seen is None:
                return False
            sweeps.record(seen)
            for group in seen:
                self._log_observed(group)
            return True

        return Profiling(
            sweeps,
            self._window_iterations(iteration_s),
            measured=measured,
            then=Idle,
            policy_at=lambda _: DEFAULT_CLOCK,
        )

    def _pooled(self, clock_mhz: int, window: Sequence[Iteration]) -> list[Pooled] | None:
        """Pool a window; None where it was too short to tell anything, a few times at most.

        Raises:
            IncompleteProfileError: longer windows told nothing either.
        """
        try:
            seen = pooled(self._context, clock_mhz, window)
        except IncompleteProfileError as error:
            self._short_windows += 1
            if self._short_windows > _SHORT_WINDOWS:
                raise
            self._context.log.event(
                "window_too_short", f"{error.message}: once more, twice as long", clock_mhz=clock_mhz
            )
            return None
        self._short_windows = 0
        return seen

    def _log_observed(self, seen: Pooled) -> None:
        rows = [
            {"computation": f"{stage}{kind.value}", "time_s": point.time_s, "energy_j": point.energy_j}
            | {"energy_se_j": point.energy_se_j, "clock_mhz": point.achieved_mhz}
            for (stage, kind), point in seen.points.items()
        ]
        energy_j = sum(point.energy_j for point in seen.points.values())
        self._context.log.event(
            "observed",
            f"observed at default clocks: {energy_j:.4g} J in one microbatch's computations, "
            f"{seen.blocking_power_w:.4g} W while waiting",
            blocking_power_w=seen.blocking_power_w,
            computations=rows,
        )

    def _window_iterations(self, iteration_s: float) -> int:
        return max(2, -int(-self._context.config.profile.min_window_s // iteration_s))

    def _profiling(self, iteration_s: float) -> Phase:
        sweeps = sweeps_of(self._context)
        iterations = self._window_iterations(iteration_s)
        self._context.log.event(
            "profiling",
            f"profiling {sweeps.total} clocks, {iterations} iterations of {iteration_s:.3g} s at each",
            clock_mhz=sweeps.clock_mhz,
            done=0,
            total=sweeps.total,
        )

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> bool:
            seen = self._pooled(clock_mhz, window)
            if seen is None:
                return False
            sweeps.record(seen)
            self._context.log.event(
                "profiling",
                f"profiled {clock_mhz} MHz ({sweeps.done} of at most {sweeps.total})",
                clock_mhz=clock_mhz,
                done=sweeps.done,
                total=sweeps.total,
            )
            return True

        return Profiling(sweeps, iterations, measured=measured, then=lambda: self._profiled(sweeps))

    def _profiled(self, sweeps: Sweeps) -> Phase:
        context = self._context
        files = [context.directory.profile_of(group) for group in range(len(context.job.groups))]
        for group, (sweep, windows) in enumerate(zip(sweeps.sweeps, sweeps.windows, strict=True)):
            profile = profile_of(context, sweep, windows, group=group)
            if context.job.rank == 0:
                write_profile(profile, files[group])
        where = f"wrote {', '.join(map(str, files))}"
        if context.config.mode == "profile":
            context.log.event("profiled", f"{where}; mode is profile: default clocks from here on")
            return Idle()
        context.log.event("profiled", where)
        return self._planning()

    def _planning(self) -> Phase:
        """Plan from the profiles in the run directory, which rank 0 alone needs to see."""
        context = self._context
        if context.job.rank == 0:
            requests = [self._request(group) for group in range(len(context.job.groups))]
            self._planner = BackgroundPlanner(context.directory, requests)
        context.log.event("planning", "planning beside the training")
        return Planning(self._planned)

    def _request(self, group: int) -> PlanRequest:
        context = self._context
        profile = read_profile(context.directory.profile_of(group))
        assert profile.blocking_power_w is not None
        return PlanRequest(
            context.job.schedule,
            fingerprint=context.job.plan_fingerprint(group),
            blocking_power_w=profile.blocking_power_w,
            reserve_pct=context.config.objective.reserve_pct,
            split=context.config.objective.split,
            waits=context.config.objective.waits,
        )

    def _planned(self) -> Phase:
        texts = self._context.channel.broadcast_result(self._plan_texts)
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        return self._run(texts)

    def _plan_texts(self) -> list[str]:
        """What the planner has written, for all ranks."""
        context = self._context
        paths = [context.directory.plan_of(group) for group in range(len(context.job.groups))]
        return [read_bounded(path, most_bytes=MOST_BYTES).decode() for path in paths]

    def _run(self, texts: Sequence[str]) -> Phase:
        """Run the own group's plans; what is audited is held against those of the first."""
        context, audit = self._context, self._context.config.audit
        frontiers = [loads(text) for text in texts]
        objectives = [select(plans, context.config.objective) for plans in frontiers]
        for group, plan in enumerate(objectives):
            self._log_running(plan, context.job.groups[group].replicas if context.job.mixed else ())
        for plans in frontiers:
            if doubtful := doubt(plans):
                context.log.event("doubtful", doubtful)
        self.active_plan = active_plan_of(context, frontiers, objectives[context.job.group])
        return Running(
            self.active_plan,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=lambda: self._audited(objectives[0]),
        )

    def _log_running(self, plan: FrequencyPlan, replicas: Sequence[int]) -> None:
        plans = plan.of
        whose = f"replica {', '.join(map(str, replicas))}: " if replicas else ""
        self._context.log.event(
            "running",
            f"{whose}running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
            f"({round(plan.slowdown_pct, 2) + 0.0:+.2f} %), {plan.saving_pct:.1f} % energy saved as planned, "
            f"{certified(float(plans.gap_pct[plan.index]))}",
            plan=plan.index,
            iteration_time_s=plan.iteration_time_s,
            predicted_saving_pct=plan.saving_pct,
            gap_pct=float(plans.gap_pct[plan.index]),
            solve_time_s=plans.solve_time_s,
            **({"replicas": list(replicas)} if replicas else {}),
        )

    def _audited(self, plan: FrequencyPlan) -> None:
        self._summary = audited(self._context, plan) or self._summary
