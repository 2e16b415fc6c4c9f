"""A job's life with us: listen to the engine, keep what fails from it, and leave when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from perseus_ds.errors import EngineError, PerseusError, SilentRankError, as_perseus_error
from perseus_ds.plan import loads, select
from perseus_ds.runtime.accounting import Mode, RankBooks
from perseus_ds.runtime.active_plan import ActivePlan
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.channel import different_sizes
from perseus_ds.runtime.clock_sequencer import DEFAULT_CLOCK, ClockSequencer
from perseus_ds.runtime.conflicts import ConflictMonitor
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.event_log import EventLog, Scalars
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.kernel_tracing import SETTLING
from perseus_ds.runtime.phases import (
    DEFAULT_UNCOUNTED,
    BaselineOnly,
    Calibrator,
    IterationResult,
    IterationSettings,
    Phase,
    Running,
    WarmUp,
)
from perseus_ds.runtime.planned_run import power_cap_line
from perseus_ds.runtime.plans import BatchPlans, StartAction, StartDecision
from perseus_ds.runtime.recorder import Iteration, Recorder
from perseus_ds.runtime.shared_device import SharedDevice
from perseus_ds.runtime.status import JobStatus, StatusExchange
from perseus_ds.runtime.sweep import Sweeping
from perseus_ds.schedule import Kind, Load

# Why a job's life with us ends, and what each reason logs, reports and raises.
#
# | reason | logs | informs the other ranks | raises, where the user wants that |
# |---|---|---|---|
# | ended | the event | no | nothing |
# | failed | the line, on this rank | yes, unless it goes on alone | its error |
# | followed | the event, without a line: the failed rank has logged it | no | that another rank failed |
# | parted | the line, on rank 0 | no: all of them know | that their batches differ |


@dataclass(frozen=True, slots=True)
class Ending:
    """A row of the table; where this rank ``tells`` the others, it logs the line itself."""

    error: PerseusError | None = None
    silent: bool = False
    tells: bool = False

    def log(self, log: EventLog) -> None:
        """Report what there is to report."""
        if self.error is None:
            log.event("ended")
            return
        line = f"off, training goes on at default clocks: {self.error}"
        if self.tells:
            log.line_here(line)
        log.event("disabled", None if self.tells or self.silent else line, reason=str(self.error))


def ended() -> Ending:
    """The job is over, or gives its engine back."""
    return Ending()


def failed(error: PerseusError) -> Ending:
    """This rank cannot go on."""
    return Ending(error, tells=True)


def followed() -> Ending:
    """Another rank could not."""
    return Ending(EngineError("another rank of the job reported an error, see its log"), silent=True)


def parted(fewest: int, most: int) -> Ending:
    """Ranks train batches of different sizes."""
    hint = "every replica has to train as many microbatches"
    return Ending(EngineError(different_sizes(fewest, most), hint=hint))


# What a job does from its first iteration to its last: phase after phase, for batches of every size.
#
# One class in one file: its methods take in one iteration's numbers in order, and all of them move the same
# phases. What a phase or a plan does stands in files of their own.


class Lifecycle:
    """The sizes of batches, their plans, and the phase of each; ``settings`` are the present iteration's.

    Warm-up and profile are alike for batches of all sizes. From then on each has a phase of its own, which
    moves on with its batches alone. One is looked for when all ranks know that all ran that size. The
    iteration in which the size changes counts for neither side, since clocks change within it.

    Blocking exchanges happen here alone. There is one per profiled clock, one per size of batches and one
    when their plan arrives, and one per audit.
    """

    def __init__(
        self,
        context: JobContext,
        start: StartDecision,
        *,
        sweeping: Sweeping,
        calibrator: Calibrator | None,
        status_exchange: StatusExchange,
        plans: BatchPlans,
        scalars: Scalars,
    ) -> None:
        self._start, self._sweeping = start, sweeping
        self._power_w: float | None = None
        self._context = context
        self._sizes = plans.sizes
        self._status_exchange = status_exchange
        self._plans = plans
        self._scalars = scalars
        self._present = self._joined = context.job.schedule.microbatches
        self._ran = 0
        self._began_s = time.monotonic()
        self._opening = self._warm_up(calibrator)
        self._phases: dict[int, Phase] = {}
        self._is_alone = False  # whether a rank fell silent: nothing is exchanged from then on
        self.settings: IterationSettings = DEFAULT_UNCOUNTED
        context.log.event("warming_up", iterations=context.config.profile.warmup_iterations)

    @property
    def active_plan(self) -> ActivePlan | None:
        """The plan that present batches are run by; None where they run at default clocks."""
        phase = self._phase
        return phase.active_plan if isinstance(phase, Running) else None

    @property
    def rests(self) -> bool:
        """Return whether clocks go to default while the host does something else than train."""
        return self._phase is not None and self._phase.settings.rests

    def begins(self, index: int, batch: Batch) -> Job | None:
        """Choose what an iteration is run by; return the job in batches of its size, None where unknown."""
        self._began_s = time.monotonic()
        job = self._sizes.meet(batch)
        changed = bool(self._phases) and batch.microbatches != self._present
        self._present = batch.microbatches
        phase = self._phase
        self.settings = DEFAULT_UNCOUNTED if phase is None else phase.settings
        if changed:
            self.settings = replace(self.settings, mode=Mode.NEITHER)
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
        ended = IterationResult(index, passed, None if job_status is None else job_status.iteration_s)
        if not self._phases:
            if not self._is_alone:
                self._opening = self._opening.next_phase(ended)
            return
        if (phase := self._phase) is not None:
            self._phases[self._present] = phase.next_phase(ended)
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
                self._phases[size] = BaselineOnly()
        goes_on = "clocks are the default"
        if self.active_plan is not None:
            goes_on = "the plan runs on, no straggler is answered and nothing is audited"
        self._context.log.event("alone", f"{goes_on} until the job restarts: {error}", reason=str(error))

    def _warm_up(self, calibrator: Calibrator | None) -> Phase:
        """Begin with the first iterations; in the last of them the GPUs are calibrated.

        Traced ones run at default clocks: clocks change only when they are over.
        """
        settings = self._context.config
        iterations = settings.profile.warmup_iterations
        if calibrator is None:
            return WarmUp(iterations, self._open)
        calibrates = partial(calibrator.phase, opens=self._open)
        if settings.trace_kernels:
            return WarmUp(max(iterations, SETTLING), calibrates)
        return WarmUp(iterations, calibrates, ahead=calibrator.iterations)

    def _open(self, iteration_s: float) -> Phase:
        self._explain_time(iteration_s)
        job, start, sweeping = self._context.job, self._start, self._sweeping
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


_REST_AFTER_LATENCIES = 4.0
"""How many switching latencies the host may spend between two iterations before clocks go to default."""


_SETTLED_AFTER_LATENCIES = 2.0
"""After how many the clock of an iteration is in force that follows another engine's."""


class Session:
    """The listener behind an adapter's hooks; ``lifecycle`` decides what it is about.

    Whatever fails in here is kept from the host: clocks go back and one line is logged. The other ranks learn
    of it with the next exchange, and all leave at the same iteration. With ``on_error: raise`` the error is
    raised instead, after the clocks are back.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        *,
        recorder: Recorder,
        sequencer: ClockSequencer,
        device: SharedDevice,
        books: RankBooks,
        conflict_monitor: ConflictMonitor,
        log: EventLog,
        raises: bool,
    ) -> None:
        self.lifecycle = lifecycle
        self._recorder = recorder
        self._sequencer = sequencer
        self._device = device
        self._books = books
        self._conflict_monitor = conflict_monitor
        self._log = log
        self._raises = raises
        self._mode = Mode.NEITHER
        self._listens = False
        self._paced: ActivePlan | None = None
        self._given_back: list[Callable[[], None]] = []
        self._left: Ending | None = None

    @property
    def left(self) -> bool:
        """Return whether the engine runs without us again."""
        return self._left is not None

    def on_leaving(self, act: Callable[[], None]) -> None:
        """Register what gives something back; run in reverse order, once."""
        self._given_back.append(act)

    def iteration_begins(self, batch: Batch) -> bool:
        """Run the present phase, unless batches of this size are not known yet."""
        if self.left:
            return False
        self._listens = False
        self._guarded(lambda: self._run(batch))
        return self._listens and not self.left

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Mark the start of an instruction and ask for its clock."""
        try:
            self._recorder.started(kind, load)
            if self._paced is not None and kind.is_computation:
                schedule = self._paced.paced_schedule()
                if schedule is not None:
                    self._sequencer.change_to(schedule)
            self._sequencer.before(kind)
        except Exception as error:  # noqa: BLE001  # nothing of ours may reach the host's step
            self._leave(failed(as_perseus_error(error)))

    def after(self, kind: Kind) -> None:
        """Mark its end and ask for the next clock."""
        try:
            self._recorder.ended()
            self._sequencer.after(kind)
        except Exception as error:  # noqa: BLE001  # see before()
            self._leave(failed(as_perseus_error(error)))

    def iteration_ends(self) -> None:
        """Take stock, exchange numbers, move on."""
        if not self.left:
            self._guarded(self._take_stock)
        if self._raises and self._left is not None and self._left.error is not None:
            raise self._left.error

    def other_schedule_begins(self) -> None:
        """Let evaluation run at default clocks."""
        if not self.left:
            self._guarded(self._stand_aside)

    def iteration_broke(self) -> None:
        """Restore the clock: the host's own code failed, and may end the job or try again."""
        if not self.left:
            self._guarded(self._stand_aside)

    def fail(self, error: Exception) -> bool:
        """Leave, since something before or around this failed; return whether the user wants it raised."""
        self._leave(failed(as_perseus_error(error)))
        return self._raises

    def leave(self) -> None:
        """Give everything back; safe to call twice."""
        self._leave(ended())

    def end(self, *, well: bool) -> None:
        """Leave for good: the job is over, ``well`` if nothing went wrong; safe to call twice."""
        self.leave()
        self._go_on_after(lambda: self.lifecycle.end(well=well))

    def _run(self, batch: Batch) -> None:
        job = self.lifecycle.begins(self._recorder.index, batch)
        if job is None:
            self._stand_aside()
            return
        settings = self.lifecycle.settings
        self._mode = settings.mode
        unsettled = self._took_turn() or self._recorder.interrupted
        settling_s = _SETTLED_AFTER_LATENCIES * self._sequencer.latency_s
        self._recorder.begin(job, settling_s=settling_s if unsettled else 0.0, loads=batch.loads)
        self._sequencer.begin(settings.clocks if settings.plan is None else settings.plan.begin())
        self._paced = settings.plan if settings.plan is not None and settings.plan.paces else None
        self._listens = True

    def _took_turn(self) -> bool:
        """Have it be this engine's turn; return whether another one has had the clocks since its last."""
        if not self._device.take(self):
            return False
        self._sequencer.forget()
        return True

    def _stand_aside(self) -> None:
        self._mode = Mode.NEITHER
        self._took_turn()
        self._recorder.interrupt()
        self._sequencer.begin(DEFAULT_CLOCK)

    def _take_stock(self) -> None:
        for lower in (self._conflict_monitor.check(), self._sequencer.error, self._books.error):
            if lower is not None:
                raise lower
        index = self._recorder.finish()
        known = self._conflict_monitor.note_stored(now=self._sequencer.stored)
        self._books.ran(index, self._mode, known=known and self._conflict_monitor.control.controlled)
        passed = self._recorder.passed()
        for line in filter(None, (self._recorder.trouble(), self._books.trouble())):
            self._log.event("not_measured", line)
        self._books.enter(passed)
        leaving = self.lifecycle.advance(index, passed)
        if leaving is not None:
            self._leave(leaving)
            return
        self._recorder.rest()
        if self.lifecycle.rests:
            self._sequencer.rest(_REST_AFTER_LATENCIES * self._sequencer.latency_s)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._leave(failed(as_perseus_error(error)))
            if self._raises:
                raise

    def _leave(self, leaving: Ending) -> None:
        """Give everything back, clocks first of all, then do what the table states (`leaving`); once.

        Each step goes on after a failure of the one before it. What an error shows of the device is noted
        before the device is closed; nothing else comes before the restoration.
        """
        if self.left:
            return
        self._left, error = leaving, leaving.error
        if leaving.tells and error is not None:
            self._go_on_after(lambda: self._conflict_monitor.note_failure(error))
        for act in reversed(self._given_back):
            self._go_on_after(act)
        if leaving.tells:
            self._go_on_after(self.lifecycle.tell_failure)
        self._go_on_after(lambda: leaving.log(self._log))

    def _go_on_after(self, act: Callable[[], None]) -> None:
        """Do one step of several on the way out: its failure is logged and keeps no other from its turn."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a lost device must not keep the hook in place
            self._log.line_here(f"while leaving: {error}")
