"""From one phase to the next: what a job does between its first iteration and its last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.plan import loads, select
from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy
from perseus_ds.runtime.lifecycle.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.batches.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.batches.planned_batches import PlannedBatches
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import Phase, WarmUp
from perseus_ds.runtime.lifecycle.planned_run import PlanRuns
from perseus_ds.runtime.lifecycle.shown import shown
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision
from perseus_ds.runtime.lifecycle.sweeping import Sweeping
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.recorder import Iteration


class Lifecycle:
    """The present phase, and what is needed to reach the next one.

    Blocking exchanges happen here alone: once per profiled clock, once per size of batches and once when
    their plan arrives, once per audit, and where replicas have different GPUs once for their clocks.
    """

    def __init__(self, context: JobContext, start: StartDecision, sizes: BatchSizes) -> None:
        self._context = context
        self._sizes = sizes
        self._size = context.job.schedule.microbatches
        self._runs = PlanRuns()
        self._plans = BatchPlans(context, sizes, self._runs)
        self._phase: Phase = WarmUp(
            context.config.profile.warmup_iterations, lambda iteration_s: self._open(start, iteration_s)
        )
        context.log.event("warming_up", iterations=context.config.profile.warmup_iterations)

    @property
    def active_plan(self) -> ActivePlan | None:
        """The plan in force; None while there is none."""
        return self._phase.active_plan if isinstance(self._phase, PlannedBatches) else None

    @property
    def clock_policy(self) -> ClockPolicy:
        """What the present iteration is run by."""
        return self._phase.clock_policy

    @property
    def mode(self) -> Mode:
        """What the present iteration counts for."""
        return self._phase.mode

    def begins(self, index: int, microbatches: int) -> None:
        """An iteration begins, with a batch of this size."""
        self._phase.begins(index, microbatches)

    def advance(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> None:
        """Move on after an iteration."""
        if job_status is not None and job_status.microbatches is not None:
            self._size = job_status.microbatches
            self._sizes.join(self._size)
        self._phase = self._phase.following(index, passed, job_status)

    def plans_ready(self) -> int:
        """How many plans rank 0's background planner has finished so far."""
        return self._plans.ready()

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
        plan = self.active_plan
        return (
            {} if plan is None else shown(plan, self._context.account, self._runs.summaries.get(self._size))
        )

    def close(self) -> None:
        """End what still runs beside the training."""
        self._plans.close()

    def _open(self, start: StartDecision, iteration_s: float) -> Phase:
        job = self._context.job
        match start.action:
            case StartAction.RUN:
                return self._planned(job.schedule.microbatches, self._plans.running(job, start.plans))
            case StartAction.PLAN:
                return self._planned(job.schedule.microbatches, self._plans.planning(job))
            case StartAction.PROFILE:
                return Sweeping(self._context).profiling(
                    iteration_s, then=lambda: self._planned(self._size, self._plans.phase_for(self._size))
                )
            case StartAction.OBSERVE:
                self._predict(start)
                return Sweeping(self._context).observing(iteration_s)

    def _planned(self, microbatches: int, phase: Phase) -> Phase:
        return PlannedBatches(self._plans, microbatches, phase)

    def _predict(self, start: StartDecision) -> None:
        """Say what a plan that is there would save."""
        context = self._context
        for text in start.plans:
            plan = select(loads(text), context.config.objective)
            context.log.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )
