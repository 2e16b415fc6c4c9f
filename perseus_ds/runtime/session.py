"""Iterations of one engine: what the hooks call, what runs, and how it ends.

    framework hook --> Session.before / after --> Recorder              (device times)
                              |
                              '--> ClockSequencer --> ClockThread --> guard --> GPU
    Session.iteration_ends --> RankBooks --> StatusExchange (posted at n, read at n + 1) --> Phase.next
                                                                                                  |
    Session.iteration_begins <----------- settings of the next iteration <------------------------'

Whatever fails here is kept from the host: clocks go back and one line is logged. The other ranks learn of it
with the next exchange, and all leave at the same iteration. With ``on_error: raise`` the error is raised,
after the clocks are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import EngineError, PerseusError, SilentRankError, as_perseus_error
from perseus_ds.plan import select
from perseus_ds.plan.file import loads
from perseus_ds.runtime.accounting import Mode, RankBooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.channel import different_sizes
from perseus_ds.runtime.clocks import DEFAULT_CLOCK, Ask, ClockSequencer, ClockThread, DeviceTask
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.event_log import Scalars
from perseus_ds.runtime.phases import (
    DEFAULT_UNCOUNTED,
    ActivePlan,
    BaselineOnly,
    IterationSettings,
    Opened,
    Phase,
    Profiled,
    Running,
)
from perseus_ds.runtime.planned_run import power_cap_line
from perseus_ds.runtime.plans import BatchPlans, StartAction, StartDecision
from perseus_ds.runtime.recorder import Iteration, Recorder
from perseus_ds.runtime.shared_device import SharedDevice
from perseus_ds.runtime.status import ConflictMonitor, JobStatus, StatusExchange
from perseus_ds.runtime.sweep import Observing, Windows, begin_profile
from perseus_ds.schedule import Kind, Load

_REST_AFTER_LATENCIES = 4.0
"""Switching latencies that the host may spend between two iterations before clocks go to default."""

_SETTLED_AFTER_LATENCIES = 2.0
"""Switching latencies after which the clock of an iteration is in force that follows another engine's."""

_FOLLOWED = "another rank of the job reported an error, see its log"

P = ParamSpec("P")
T = TypeVar("T")


def guarded(call: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[Session, P], T]:
    """Leave where a call of the host's fails; it is raised only where the user wants that."""

    @wraps(call)
    def run(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            if not session.left:
                return call(session, *args, **kwargs)
        except Exception as error:
            if session.fail(error):
                raise
        return cast("T", False)  # no instruction is wanted

    return run


class Session:
    """Owns the iterations of one engine: their phases, their clocks, their measurements, and the end.

    Warm-up and profile are alike for batches of all sizes. From then on each size has a phase of its own,
    which moves on with its batches alone. One is looked for when all ranks know that all ran that size. The
    iteration in which the size changes counts for neither side, since clocks change within it.

    Blocking exchanges happen at the end of iterations alone. There is one per profiled clock, one per size of
    batches and one when their plan arrives, and one per audit.

    ``opening`` is the first phase, ``settings`` are the present iteration's. ``undo`` gives everything back,
    in reverse order and once; it grows until the hooks are in place.
    """

    def __init__(
        self,
        context: JobContext,
        start: StartDecision,
        opening: Phase,
        *,
        device: SharedDevice,
        requests: ClockThread,
        sequencer: ClockSequencer,
        recorder: Recorder,
        books: RankBooks,
        conflict_monitor: ConflictMonitor,
        status_exchange: StatusExchange,
        plans: BatchPlans,
        undo: Sequence[Callable[[], None]],
        scalars: Scalars | None = None,
    ) -> None:
        self._context, self._start = context, start
        self.device, self.requests, self._sequencer = device, requests, sequencer
        self.recorder, self.books, self._conflicts = recorder, books, conflict_monitor
        self._status_exchange, self._plans, self._scalars = status_exchange, plans, scalars
        self._raises = context.config.on_error == "raise"
        self._undo = undo
        self.error: PerseusError | None = None
        self.left = False
        self.settings: IterationSettings = DEFAULT_UNCOUNTED
        self._paced: ActivePlan | None = None
        self._task: DeviceTask | None = None
        self._present = self._joined = context.job.schedule.microbatches
        self._power_w: float | None = None
        self._began_s = time.monotonic()
        self._alone = False  # a rank fell silent: nothing is exchanged from then on
        self._opening: Phase | None = opening
        self._phases: dict[int, Phase] = {}  # by size of batch, once the opening is over
        context.log.event("warming_up", iterations=context.config.profile.warmup_iterations)

    @property
    def active_plan(self) -> ActivePlan | None:
        """The plan that present batches are run by; None where they run at default clocks."""
        phase = self._phases.get(self._present)
        return phase.active_plan if isinstance(phase, Running) else None

    def use(self, able: Capabilities) -> None:
        """Reckon with what the GPU can do, wherever a clock is asked for or energy is read."""
        self._sequencer.latency_s = able.switch_latency_s or 0.0
        self.device.choice.gpu.expect(call_s=able.switch_call_s, latency_s=able.switch_latency_s)
        self.books.watch.reckon(able)

    # ---- what the hooks call ----

    @guarded
    def iteration_begins(self, batch: Batch) -> bool:
        """Run the present phase; False where batches of this size are not known yet, or after the end."""
        self._began_s = time.monotonic()
        size, plans, sequencer = batch.microbatches, self._plans, self._sequencer
        plans.loads_known[size] = batch.loads is not None
        job = plans.jobs.get(size)
        changed = bool(self._phases) and size != self._present
        self._present = size
        phase = self._opening or self._phases.get(size)
        settings = DEFAULT_UNCOUNTED if phase is None else phase.settings
        if settings.task is not None and self._task is None:
            self._task = settings.task
            self.requests.run(settings.task)
        if job is None:
            plans.meet(size)
            self.other_schedule_begins()
            return False
        if changed:
            settings = replace(settings, mode=Mode.NEITHER, settled=False)
        # another engine has had the clocks since
        took_turn = self.device.holder is not self and self.device.take(self)
        if took_turn:
            sequencer.forget()
        settling_s = 0.0
        if took_turn or self.recorder.interrupted:
            settling_s = _SETTLED_AFTER_LATENCIES * sequencer.latency_s
        self.recorder.begin(job, settling_s=settling_s, loads=batch.loads)
        plan, clocks = settings.plan, settings.clocks
        if plan is not None:
            clocks = plan.begin(self.recorder.index, batch.loads, settled=settings.settled)
        sequencer.begin(clocks)
        self._paced = plan if plan is not None and plan.paces else None
        self.settings = settings
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Mark the start of an instruction and ask for its clock."""
        try:
            self.recorder.mark_start(kind, load)
            if self._paced is not None and kind.is_computation:
                schedule = self._paced.paced_schedule()
                if schedule is not None:
                    self._sequencer.change_to(schedule)
            self._sequencer.before(kind)
        except Exception as error:
            if self.fail(error):
                raise

    def after(self, kind: Kind) -> None:
        """Mark its end and ask for the next clock."""
        try:
            self.recorder.mark_end()
            self._sequencer.after(kind)
        except Exception as error:
            if self.fail(error):
                raise

    @guarded
    def iteration_ends(self) -> None:
        """Take in the measurements, exchange status with all ranks, choose how the next iteration runs."""
        recorder, watch, plans = self.recorder, self.books.watch, self._plans
        job: JobStatus | None = None
        watch.catch_up()
        given_up = self._conflicts.check()
        if (error := given_up or self.requests.error or watch.error) is not None:
            raise error
        index, passed = recorder.finish(), recorder.take_passed()
        self.books.enter(index, self.settings.mode, passed, known=self._conflicts.controlled)
        for line in filter(None, (recorder.trouble() if recorder.troubled else "", watch.trouble())):
            self._context.log.event("not_measured", line)
        if not self._alone:
            ready = plans.taken if plans.planner is None else plans.ready()
            try:
                job = self._status_exchange.turn(index, passed, plans_ready=ready, microbatches=self._present)
            except SilentRankError as silent:
                self._go_alone(silent)
        if job is not None and (job.failed or job.sizes is not None):
            self._leave_with_all(None if job.failed else job.sizes)
            return
        self._move_on(index, passed, job)
        if self.left:
            return
        recorder.ours_s = recorder.host_s()
        phase = self._opening or self._phases.get(self._present)
        if phase is not None and phase.settings.rests:
            self._sequencer.request((Ask(None, _REST_AFTER_LATENCIES * self._sequencer.latency_s),))

    @guarded
    def other_schedule_begins(self) -> None:
        """Let something that does not train (an evaluation) run at default clocks."""
        self.settings = DEFAULT_UNCOUNTED
        if self.device.take(self):
            self._sequencer.forget()
        self.recorder.interrupt()
        self._sequencer.begin(DEFAULT_CLOCK)

    def iteration_broke(self) -> None:
        """Restore the clock: the host's own code failed, and may end the job or try again."""
        self.other_schedule_begins()

    def fail(self, error: Exception) -> bool:
        """Leave, since something before or around this failed; return whether the user wants it raised."""
        self._leave(as_perseus_error(error), failed=True)
        return self._raises

    def leave(self) -> None:
        """Give everything back; safe to call twice."""
        self._leave(None)

    def end(self, *, well: bool) -> None:
        """Leave for good: the job is over, ``well`` if nothing went wrong; safe to call twice."""
        self.leave()
        self._try(lambda: self._status_exchange.close(well=well))

    # ---- what runs next ----

    def _move_on(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> None:
        """Move the present phase on, and give each size of batches its phase."""
        plans, size = self._plans, None if job is None else job.microbatches
        try:
            if size is not None and size != self._joined:
                self._joined = size
                plans.join(size)
            if self._opening is not None:
                self._open(self._opening.next(index, passed, job), index + 1)
            else:
                if (phase := self._phases.get(self._present)) is not None:
                    self._phases[self._present] = phase.next(index, passed, job)
                if size is not None and size not in self._phases:
                    self._phases[size] = plans.phase_for(size)
                if job is not None and job.plans_ready > plans.taken:
                    arrived_size, phase = plans.take_next()
                    self._phases[arrived_size] = phase
            if job is not None and not (job.power_w is None and self._power_w is None):
                self._hold_power_cap(index, job.power_w)
        except SilentRankError as error:
            if not self._alone and self._status_exchange.someone_failed():
                self._leave_with_all(None)
                return
            self._go_alone(error)
        if self._scalars is not None and (active_plan := self.active_plan) is not None:
            self._scalars.write(plans.shown(active_plan, self._joined))

    def _hold_power_cap(self, index: int, power_w: float | None) -> None:
        """Have plans for batches of all sizes hold the job's power cap after iteration ``index``."""
        for phase in self._phases.values():
            if isinstance(phase, Running):
                phase.active_plan.hold(index, power_w)
        if power_w != self._power_w:
            self._power_w = power_w
            cost = {} if self.active_plan is None else self.active_plan.power_cap_cost
            line, facts = power_cap_line(self._power_w, cost)
            self._context.log.event("power_cap", line, **facts)

    def _open(self, phase: Phase, ran: int) -> None:
        """Go on after warm-up and profile, of which ``ran`` iterations have passed; collective then.

        Batches of every size have a phase of their own from the first that the plans bring.
        """
        if self._task is not None and phase.settings.task is not self._task:
            self._stop_task()
        plans, job = self._plans, self._context.job
        size = job.schedule.microbatches
        first: Phase | None = None
        if isinstance(phase, Profiled):
            size = self._joined
            first = plans.phase_for(size)
        elif isinstance(phase, Opened):
            if phase.found is not None:
                self.use(phase.found)
            self._explain_time(phase.iteration_s)
            match self._start.action:
                case StartAction.RUN:
                    first = plans.run_plan(job, self._start.plans)
                case StartAction.PLAN:
                    first = plans.ask_for_plan(job)
                case StartAction.PROFILE:
                    windows = Windows(self._context, self.books.watch, self._conflicts)
                    phase = begin_profile(windows, phase.iteration_s, ran=ran)
                case StartAction.OBSERVE:
                    self._predict()
                    windows = Windows(self._context, self.books.watch, self._conflicts)
                    watched = windows.watch.period_s is not None and windows.whole is None
                    phase = Observing(windows, phase.iteration_s, ran=ran) if watched else BaselineOnly()
        if first is None:
            self._opening = phase
        else:
            self._opening, self._phases[size] = None, first

    def _go_alone(self, error: SilentRankError) -> None:
        """Run the objective's plan, the only one that all ranks know; where there is none, default clocks."""
        self._alone, self._opening = True, None
        self._stop_task()
        for size, phase in self._phases.items():
            if isinstance(phase, Running):
                phase.alone()
            else:
                self._phases[size] = BaselineOnly()
        goes_on = "clocks are the default"
        if self.active_plan is not None:
            goes_on = "the plan runs on, no straggler is answered and nothing is audited"
        self._context.log.event("alone", f"{goes_on} until the job restarts: {error}", reason=str(error))

    def _stop_task(self) -> None:
        if self._task is not None:
            self.requests.stop(self._task)
            self._task = None

    def _explain_time(self, iteration_s: float) -> None:
        """Relate virtual time to this host's, by the iteration that ends."""
        context, host_s = self._context, time.monotonic() - self._began_s
        virtual = context.simulated and context.config.simulated.get("time", "virtual") == "virtual"
        if virtual and host_s > 0.0:
            times = iteration_s / host_s
            context.log.line(f"virtual time: 1 s here is about {times:.2g} s of the simulated GPUs")

    def _predict(self) -> None:
        """Report what a plan that is there would save."""
        if self._start.plans:
            plan = select(loads(self._start.plans), self._context.config.objective)
            self._context.log.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )

    # ---- the end ----

    def _leave_with_all(self, sizes: tuple[int, int] | None) -> None:
        """Leave at the same iteration as all others: one rank failed, or batches have different ``sizes``."""
        error = EngineError(_FOLLOWED)
        if sizes is not None:
            hint = "every replica has to train as many microbatches"
            error = EngineError(different_sizes(*sizes), hint=hint)
        self._leave(error, aloud=sizes is not None)
        if self._raises:
            raise error

    def _leave(self, error: PerseusError | None, *, failed: bool = False, aloud: bool = False) -> None:
        """Give everything back, clocks first of all, then inform and log; once.

        Each step goes on after a failure of the one before it. What an error shows of the device is noted
        before the device is closed; nothing else comes before the restoration. A rank that ``failed`` logs
        its error and informs the others; an error that all know of rank 0 logs where it is said ``aloud``.
        """
        if self.left:
            return
        self.left, self.error = True, error
        if failed and error is not None:
            self._try(partial(self._conflicts.note_failure, error))
        for act in reversed(self._undo):
            self._try(act)
        if failed and not self._alone:
            self._try(self._status_exchange.fail)
        log, line = self._context.log, f"off, training goes on at default clocks: {error}"
        if failed:
            self._try(lambda: log.line_here(line))
        if error is None:
            self._try(lambda: log.event("ended"))
        else:
            self._try(lambda: log.event("disabled", line if aloud else None, reason=str(error)))

    def _try(self, act: Callable[[], None]) -> None:
        """Do one step of several on the way out: its failure is logged and keeps no other from its turn."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a lost device must not keep the hook in place
            self._context.log.line_here(f"while leaving: {error}")
