"""What a job does from its first iteration to its last: phase after phase, for batches of every size.

One class in one file: its methods take in one iteration's numbers in order, and all of them move the same
phases. What a phase or a plan does stands in files of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import SilentRankError
from perseus_ds.plan import loads, select
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.comm.status import JobStatus, StatusExchange
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.event_log import Scalars
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.kernel_tracing import SETTLING
from perseus_ds.runtime.lifecycle.findings import power_cap_line
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.leaving import Ending, followed, parted
from perseus_ds.runtime.lifecycle.measuring.calibrating import Calibrator
from perseus_ds.runtime.lifecycle.measuring.sweeping import Sweeping
from perseus_ds.runtime.lifecycle.phases import ASIDE, Ended, Phase, Running, Step, Unplanned, WarmUp
from perseus_ds.runtime.lifecycle.planning.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision
from perseus_ds.runtime.recorder import Iteration


@dataclass(frozen=True, slots=True)
class FirstPhases:
    """How a job comes to its first plan: what was decided at its start, GPUs calibrated, clocks swept."""

    start: StartDecision
    sweeping: Sweeping
    calibrator: Calibrator | None = None

    def warm_up(self, settings: PerseusConfig, opens: Callable[[float], Phase]) -> Phase:
        """The first iterations; the last of them are those in which the GPUs are calibrated.

        Traced ones run at default clocks: clocks change only when they are over.
        """
        iterations = settings.profile.warmup_iterations
        if self.calibrator is None:
            return WarmUp(iterations, opens)
        calibrates = partial(self.calibrator.phase, opens=opens)
        if settings.trace_kernels:
            return WarmUp(max(iterations, SETTLING), calibrates)
        return WarmUp(iterations, calibrates, ahead=self.calibrator.iterations)


class Lifecycle:
    """The sizes of batches, their plans, and the phase that each is in; ``step`` is the present iteration's.

    Warm-up and profile are alike for batches of all sizes. From then on each has a phase of its own, which
    moves on with its batches alone. One is looked for when all ranks know that all ran that size. The
    iteration in which the size changes counts for neither side, since clocks change within it.

    Blocking exchanges happen here alone. There is one per profiled clock, one per size of batches and one
    when their plan arrives, and one per audit.
    """

    def __init__(
        self,
        context: JobContext,
        first: FirstPhases,
        *,
        status_exchange: StatusExchange,
        plans: BatchPlans,
        scalars: Scalars,
    ) -> None:
        self._first = first
        self._power_w: float | None = None
        self._context = context
        self._sizes = plans.sizes
        self._status_exchange = status_exchange
        self._plans = plans
        self._scalars = scalars
        self._present = self._joined = context.job.schedule.microbatches
        self._ran = 0
        self._began_s = time.monotonic()
        self._opening = first.warm_up(context.config, self._open)
        self._phases: dict[int, Phase] = {}
        self._is_alone = False  # whether a rank fell silent: nothing is exchanged from then on
        self.step: Step = ASIDE
        context.log.event("warming_up", iterations=context.config.profile.warmup_iterations)

    @property
    def active_plan(self) -> ActivePlan | None:
        """The plan that present batches are run by; None where they run at default clocks."""
        phase = self._phase
        return phase.active_plan if isinstance(phase, Running) else None

    @property
    def rests(self) -> bool:
        """Whether clocks go to default while the host does something else than train."""
        return self._phase is not None and self._phase.step.rests

    def begins(self, index: int, batch: Batch) -> Job | None:
        """Choose what an iteration is run by; return the job in batches of its size, None where unknown."""
        self._began_s = time.monotonic()
        job = self._sizes.meet(batch)
        changed = bool(self._phases) and batch.microbatches != self._present
        self._present = batch.microbatches
        phase = self._phase
        self.step = ASIDE if phase is None else phase.step
        if changed:
            self.step = replace(self.step, mode=Mode.NEITHER)
        elif phase is not None:
            if self.active_plan is not None:
                self.active_plan.meet(batch.loads)
            phase.begins(index)
        return job

    def advance(self, index: int, passed: Sequence[Iteration]) -> Ending | None:
        """Exchange numbers with all ranks and move on; return why to leave, where all do.

        Raises:
            PerseusError: this rank cannot go on.
        """
        job_status = self._exchanged(index, passed)
        if job_status is not None and job_status.failed:
            return followed()
        if job_status is not None and job_status.sizes is not None:
            return parted(*job_status.sizes)
        try:
            self._move_on(index, passed, job_status)
        except SilentRankError as error:
            if not self._is_alone and self._status_exchange.someone_failed():
                return followed()
            self._go_alone(error)
        if self._scalars.wanted and self.active_plan is not None:
            self._scalars.write(self._plans.shown(self.active_plan, self._joined))
        return None

    def tell_failure(self) -> None:
        """Have the other ranks leave with this one, which cannot go on."""
        if not self._is_alone:
            self._status_exchange.fail()

    def end(self, *, well: bool) -> None:
        """Report nothing any more: the job is over, ``well`` if nothing went wrong."""
        for phase in self._phases.values():
            if isinstance(phase, Running):
                phase.active_plan.close()
        self._status_exchange.close(well=well)

    def close(self) -> None:
        """End what still runs beside the training."""
        self._plans.close()

    @property
    def _phase(self) -> Phase | None:
        """The phase of present batches; None before their size has one, and while an opening job is alone."""
        if self._phases:
            return self._phases.get(self._present)
        return None if self._is_alone else self._opening

    def _exchanged(self, index: int, passed: Sequence[Iteration]) -> JobStatus | None:
        """Exchange status with all ranks; where the others fall silent the plan can go on without them."""
        if self._is_alone:
            return None
        try:
            return self._status_exchange.turn(
                index,
                passed,
                plans_ready=self._plans.ready(),
                microbatches=self._present,
            )
        except SilentRankError as error:
            self._go_alone(error)
            return None

    def _move_on(self, index: int, passed: Sequence[Iteration], job_status: JobStatus | None) -> None:
        if job_status is not None:
            if job_status.microbatches is not None:
                self._joined = job_status.microbatches
                self._sizes.join(self._joined)
            if self.active_plan is not None:
                self.active_plan.observe(index, job_status)
            self._hold(index, job_status, apart_from=self.active_plan)
        self._ran = index + 1
        ended = Ended(index, passed, None if job_status is None else job_status.iteration_s)
        if not self._phases:
            if not self._is_alone:
                self._opening = self._opening.following(ended)
            return
        if (phase := self._phase) is not None:
            self._phases[self._present] = phase.following(ended)
        if job_status is not None:
            known = self.active_plan
            self._take_in(job_status)
            if self.active_plan is not known:
                self._hold(index, job_status)

    def _hold(self, index: int, job_status: JobStatus, *, apart_from: ActivePlan | None = None) -> None:
        """Have plans for batches of all sizes hold the job's power cap."""
        for phase in self._phases.values():
            if isinstance(phase, Running) and phase.active_plan is not apart_from:
                phase.active_plan.hold(index, job_status)
        if job_status.power_w != self._power_w:
            self._power_w = job_status.power_w
            cost = {} if self.active_plan is None else self.active_plan.power_cap_cost
            line, facts = power_cap_line(self._power_w, cost)
            self._context.log.event("power_cap", line, **facts)

    def _take_in(self, job_status: JobStatus) -> None:
        """Look for the plan of a size that is new, and take the next one that is ready."""
        size = job_status.microbatches
        if size is not None and size not in self._phases:
            self._phases[size] = self._plans.phase_for(size)
        arrived = self._plans.arrived(job_status.plans_ready)
        if arrived is not None:
            planned, phase = arrived
            self._phases[planned] = phase

    def _go_alone(self, error: SilentRankError) -> None:
        """Run the objective's plan, the only one that all ranks know; where there is none, default clocks."""
        self._is_alone = True
        if not self._phases:
            self._opening.parted()
        for size, phase in self._phases.items():
            if isinstance(phase, Running):
                phase.alone()
            else:
                self._phases[size] = Unplanned()
        goes_on = "clocks are the default"
        if self.active_plan is not None:
            goes_on = "the plan runs on, no straggler is answered and nothing is audited"
        self._context.log.event("alone", f"{goes_on} until the job restarts: {error}", reason=str(error))

    def _open(self, iteration_s: float) -> Phase:
        self._explain_time(iteration_s)
        job, start, sweeping = self._context.job, self._first.start, self._first.sweeping
        match start.action:
            case StartAction.RUN:
                return self._by_size(job.schedule.microbatches, self._plans.running(job, start.plans))
            case StartAction.PLAN:
                return self._by_size(job.schedule.microbatches, self._plans.planning(job))
            case StartAction.PROFILE:
                return sweeping.profiling(
                    iteration_s,
                    ran=self._ran,
                    then=lambda: self._by_size(self._joined, self._plans.phase_for(self._joined)),
                )
            case StartAction.OBSERVE:
                self._predict(start)
                return sweeping.observing(iteration_s, ran=self._ran)

    def _explain_time(self, iteration_s: float) -> None:
        """Relate virtual time to this host's, by the iteration that ends."""
        context = self._context
        host_s = time.monotonic() - self._began_s
        if (
            context.simulated
            and context.config.simulated.get("time", "virtual") == "virtual"
            and host_s > 0.0
        ):
            times = iteration_s / host_s
            context.log.line(f"virtual time: 1 s here is about {times:.2g} s of the simulated GPUs")

    def _by_size(self, microbatches: int, phase: Phase) -> Phase:
        """Give batches of every size a phase of their own from now on; this is the first."""
        self._phases[microbatches] = phase
        return phase

    def _predict(self, start: StartDecision) -> None:
        """Report what a plan that is there would save."""
        context = self._context
        if start.plans:
            plan = select(loads(start.plans), context.config.objective)
            context.log.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )
