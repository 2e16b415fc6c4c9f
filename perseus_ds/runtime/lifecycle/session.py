"""One job's life with us: listen to the engine, walk from phase to phase, and leave when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from perseus_ds.errors import EngineError, PerseusError, as_perseus_error
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.comm.control_channel import different_sizes
from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.comm.status_exchange import StatusExchange
from perseus_ds.runtime.control.clock_requests import Requests
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.lifecycle.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.lifecycle import Lifecycle
from perseus_ds.runtime.lifecycle.phases import DEFAULT_CLOCK
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.recorder import Iteration, Recorder
from perseus_ds.runtime.observe.scalars import Scalars
from perseus_ds.schedule import Kind

_REST_AFTER_LATENCIES = 4.0
"""How many switching latencies the host may spend between two iterations before clocks go to default."""


_SETTLED_AFTER_LATENCIES = 2.0
"""After how many the clock of an iteration is in force that follows another engine's."""


class Turns(Protocol):
    """A device that several engines of this process may train on, one at a time."""

    def take(self, who: object) -> bool:
        """Have it be somebody's turn; return whether somebody else has had the clocks since the last one."""


class Session:
    """The listener behind an adapter's hooks; ``lifecycle`` says what it is about.

    Whatever fails in here is kept from the host: clocks go back, one line is logged, the other ranks learn of
    it with the next exchange, and all leave at the same iteration. With ``on_error: raise`` the error is
    raised instead, after the clocks are back.
    """

    def __init__(
        self,
        *,
        sizes: BatchSizes,
        lifecycle: Lifecycle,
        status_exchange: StatusExchange,
        recorder: Recorder,
        sequencer: ClockSequencer,
        requests: Requests,
        device: Turns,
        context: JobContext,
        scalars: Scalars,
        raises: bool,
    ) -> None:
        self._sizes = sizes
        self.lifecycle = lifecycle
        self._status_exchange = status_exchange
        self._recorder = recorder
        self._sequencer = sequencer
        self._requests = requests
        self._device = device
        self._watch = context.watch
        self._account = context.account
        self._durations = context.durations
        self._conflict_monitor = context.conflict_monitor
        self._scalars = scalars
        self._log = context.log
        self._raises = raises
        latency_s = context.capabilities.switch_latency_s or 0.0
        self._rest_after_s = _REST_AFTER_LATENCIES * latency_s
        self._settling_s = _SETTLED_AFTER_LATENCIES * latency_s
        self._modes: dict[int, Mode] = {}
        self._mode = Mode.NEITHER
        self._failed: PerseusError | None = None
        self._leaving: list[Callable[[], None]] = []
        self._alone = False
        self._microbatches = 0
        self._heard = False
        self.left = False

    def on_leaving(self, act: Callable[[], None]) -> None:
        """Register what gives something back; run in reverse order, once."""
        self._leaving.append(act)

    def iteration_begins(self, batch: Batch) -> bool:
        """Run the present phase, unless batches of this size are not known yet."""
        if self._failed is not None:
            return False
        self._heard = False
        self._guarded(self._run, batch)
        return self._heard and self._failed is None

    def before(self, kind: Kind, size: int = 0) -> None:
        """Mark the start of an instruction and ask for its clock."""
        try:
            self._recorder.started(kind, size)
            self._sequencer.before(kind)
        except Exception as error:  # noqa: BLE001  # nothing of ours may reach the host's step
            self._fail(error)

    def after(self, kind: Kind) -> None:
        """Mark its end and ask for the next clock."""
        try:
            self._recorder.ended()
            self._sequencer.after(kind)
        except Exception as error:  # noqa: BLE001  # see before()
            self._fail(error)

    def iteration_ends(self) -> None:
        """Take stock, exchange numbers, move on."""
        if not self.left:
            self._guarded(self._take_stock)
        elif self._raises and self._failed is not None:
            raise self._failed

    def other_schedule_begins(self) -> None:
        """Let evaluation run at default clocks."""
        if self._failed is None:
            self._guarded(self._stand_aside)

    def iteration_broke(self) -> None:
        """Restore the clock: the host's own code failed, and may end the job or try again."""
        if self._failed is None:
            self._guarded(self._stand_aside)

    def leave(self) -> None:
        """Give everything back; safe to call twice."""
        if self.left:
            return
        self.left = True
        for act in reversed(self._leaving):
            self._go_on_after(act)

    def end(self, *, well: bool) -> None:
        """Leave for good: the job is over, ``well`` if nothing went wrong; safe to call twice."""
        if not self.left:
            self._log.event("ended")
        self.leave()
        self._go_on_after(lambda: self._status_exchange.close(well=well))

    def _go_on_after(self, act: Callable[[], None]) -> None:
        """Do one thing of several on the way out: its failure is logged and keeps no other from its turn."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a lost device must not keep the hook in place
            self._log.line_here(f"while leaving: {error}")

    def _run(self, batch: Batch) -> None:
        self._microbatches = batch.microbatches
        self._status_exchange.iteration_begins()
        job = self._sizes.meet(batch)
        self.lifecycle.begins(self._recorder.index, batch.microbatches)
        if job is None:
            self._stand_aside()
            return
        self._mode = self.lifecycle.mode
        other = self._device.take(self)
        if other:
            self._sequencer.forget()
        unsettled = other or self._recorder.interrupted
        self._recorder.begin(job, settling_s=self._settling_s if unsettled else 0.0)
        self._sequencer.begin(self.lifecycle.clock_policy)
        self._heard = True

    def _stand_aside(self) -> None:
        self._mode = Mode.NEITHER
        if self._device.take(self):
            self._sequencer.forget()
        self._recorder.interrupt()
        self._sequencer.begin(DEFAULT_CLOCK)

    def _take_stock(self) -> None:
        for lower in (self._conflict_monitor.check(), self._requests.error, self._watch.error):
            if lower is not None:
                raise lower
        index = self._recorder.finish()
        self._modes[index] = self._mode
        if not self._conflict_monitor.control.controlled:  # what the clocks were meanwhile nobody knows
            self._modes = dict.fromkeys(self._modes, Mode.NEITHER)
        passed = self._recorder.passed()
        self._book(passed)
        job_status = self._exchanged(index, passed)
        if job_status is not None and job_status.failed:
            self._follow()
            return
        if job_status is not None and job_status.sizes is not None:
            self._part(job_status.sizes)
            return
        try:
            self.lifecycle.advance(index, passed, job_status)
        except EngineError as error:
            if not self._alone and self._status_exchange.someone_failed():
                self._follow()
                return
            self._go_alone(error)
        if self._scalars.wanted:
            self._scalars.write(self.lifecycle.shown())
        self._recorder.rest()
        if self.lifecycle.rests:
            self._sequencer.rest(self._rest_after_s)

    def _exchanged(self, index: int, passed: Sequence[Iteration]) -> JobStatus | None:
        """Exchange status with all ranks; where the others fall silent the plan can go on without them."""
        if self._alone:
            return None
        try:
            return self._status_exchange.turn(
                index,
                passed,
                plans_ready=self.lifecycle.plans_ready(),
                microbatches=self._microbatches,
                brief=self.lifecycle.stands_alone,
            )
        except EngineError as error:
            self._go_alone(error)
            return None

    def _go_alone(self, error: EngineError) -> None:
        """Play the plan on where that needs nobody else; where it does, the error stands."""
        if not self.lifecycle.stands_alone:
            raise error
        self._alone = True
        self.lifecycle.alone()
        self._log.event(
            "alone",
            f"the plan runs on; stragglers are not answered and nothing is audited any more: {error}",
            reason=str(error),
        )

    def _book(self, passed: Sequence[Iteration]) -> None:
        if trouble := self._recorder.trouble():
            self._log.event("marks_lost", trouble)
        for iteration in passed:
            mode = self._modes.pop(iteration.index)
            if iteration.resumed:
                mode = Mode.NEITHER
            if iteration.intervals:
                self._account.add(mode, iteration)
                if mode is not Mode.NEITHER:
                    self._durations.add(mode, iteration)

    def _guarded(self, act: Callable[..., None], *args: object) -> None:
        try:
            act(*args)
        except Exception as error:
            if not self.left:
                self._fail(error)
            if self._raises:
                raise

    def _fail(self, error: Exception) -> None:
        """Stop working: clocks back at once; the others learn of it, then all leave."""
        if self._failed is not None:
            self.leave()
            return
        failed = self._failed = as_perseus_error(error)
        self._go_on_after(lambda: self._conflict_monitor.failed(failed))
        self._log.line_here(f"off, training goes on at default clocks: {failed}")
        self._log.event("disabled", reason=str(failed))
        self._fail_and_leave()

    def _follow(self) -> None:
        """Leave because another rank had to; it has logged why."""
        self.leave()
        if self._raises:
            self._failed = EngineError("another rank of the job reported an error, see its log")
            raise self._failed

    def _part(self, sizes: tuple[int, int]) -> None:
        """Leave because ranks train batches of different sizes, as all know by now; rank 0 says it."""
        error = EngineError(different_sizes(*sizes), hint="every replica has to train as many microbatches")
        self._log.event("disabled", f"off, training goes on at default clocks: {error}", reason=str(error))
        self.leave()
        if self._raises:
            self._failed = error
            raise error

    def _fail_and_leave(self) -> None:
        if not self._alone:
            self._go_on_after(self._status_exchange.fail)
        self.leave()
