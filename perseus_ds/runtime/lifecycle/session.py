"""One job's life with us: listen to the engine, walk the course of phases, and leave when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perseus_ds.adapters.deepspeed.seam import PipeSchedule
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.status import News
from perseus_ds.runtime.comm.status_exchange import Exchange
from perseus_ds.runtime.control.clock_requests import ClockRequests
from perseus_ds.runtime.control.clock_sequencer import Conductor
from perseus_ds.runtime.lifecycle.lifecycle import Course
from perseus_ds.runtime.lifecycle.phases import DEFAULT_CLOCK
from perseus_ds.runtime.measure.accounting import Account, Mode
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration, Recorder
from perseus_ds.runtime.observe.conflict_monitor import Lookout
from perseus_ds.runtime.observe.event_log import Voice
from perseus_ds.runtime.observe.publishing import Durations
from perseus_ds.runtime.observe.scalars import Scalars
from perseus_ds.runtime.surprise import refusal_of
from perseus_ds.schedule import Kind


class Session:
    """The listener behind the interception.

    Whatever fails in here is kept from the host: clocks go back, one line is said, the other ranks hear of
    it with the next exchange, and all leave at the same iteration. With ``on_error: raise`` the error is
    raised instead, after the clocks are back.
    """

    def __init__(
        self,
        *,
        microbatches: int,
        course: Course,
        exchange: Exchange,
        recorder: Recorder,
        conductor: Conductor,
        requests: ClockRequests,
        watch: EnergyWatch,
        account: Account,
        durations: Durations,
        lookout: Lookout,
        scalars: Scalars,
        voice: Voice,
        raises: bool,
    ) -> None:
        self._microbatches = microbatches
        self._course = course
        self._exchange = exchange
        self._recorder = recorder
        self._conductor = conductor
        self._requests = requests
        self._watch = watch
        self._account = account
        self._durations = durations
        self._lookout = lookout
        self._scalars = scalars
        self._voice = voice
        self._raises = raises
        self._modes: dict[int, Mode] = {}
        self._playing = Mode.NEITHER
        self._failed: PerseusError | None = None
        self._leaving: list[Callable[[], None]] = []
        self._alone = False
        self.left = False

    def on_leaving(self, act: Callable[[], None]) -> None:
        """Register what gives something back; run in reverse order, once."""
        self._leaving.append(act)

    def iteration_begins(self, schedule: PipeSchedule) -> bool:
        """Play the present phase, unless this is not the schedule that it was made for."""
        if self._failed is not None:
            return False
        if schedule.micro_batches != self._microbatches:
            self._guarded(self._play_foreign, schedule.micro_batches)
            return False
        self._guarded(self._play)
        return self._failed is None

    def before(self, kind: Kind) -> None:
        """Mark the start of an instruction and ask for its clock."""
        try:
            self._conductor.before(kind)
            self._recorder.started(kind)
        except Exception as error:  # noqa: BLE001  # nothing of ours may reach the host's step
            self._fail(error)

    def after(self, kind: Kind) -> None:
        """Mark its end and ask for the next clock."""
        try:
            self._recorder.ended()
            self._conductor.after(kind)
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
            self._voice.event("ended")
        self.leave()
        self._go_on_after(lambda: self._exchange.close(well=well))

    def _go_on_after(self, act: Callable[[], None]) -> None:
        """Do one thing of several on the way out: its failure is said and keeps no other from its turn."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a lost device must not keep the hook in place
            self._voice.say_here(f"while leaving: {error}")

    def _play(self) -> None:
        self._exchange.iteration_begins()
        self._playing = self._course.mode
        self._recorder.begin()
        self._conductor.play(self._course.score)

    def _play_foreign(self, microbatches: int) -> None:
        self._voice.say_once(
            f"this batch has {microbatches} microbatches, the plan was made for {self._microbatches}: "
            "it runs at default clocks"
        )
        self._stand_aside()

    def _stand_aside(self) -> None:
        self._playing = Mode.NEITHER
        self._recorder.interrupt()
        self._conductor.play(DEFAULT_CLOCK)

    def _take_stock(self) -> None:
        for lower in (self._lookout.look(), self._requests.error, self._watch.error):
            if lower is not None:
                raise lower
        index = self._recorder.finish()
        self._modes[index] = self._playing
        passed = self._recorder.passed()
        self._book(passed)
        news = self._heard(index, passed)
        if news is not None and news.failed:
            self._follow()
            return
        try:
            self._course.advance(index, passed, news)
        except EngineError as error:
            if not self._alone and self._exchange.someone_failed():
                self._follow()
                return
            self._go_alone(error)
        if self._scalars.wanted:
            self._scalars.write(self._course.shown())

    def _heard(self, index: int, passed: Sequence[Iteration]) -> News | None:
        """Take a turn in the exchange; where the others fall silent the plan can go on without them."""
        if self._alone:
            return None
        try:
            return self._exchange.turn(
                index, passed, plan_ready=self._course.plan_ready(), brief=self._course.stands_alone
            )
        except EngineError as error:
            self._go_alone(error)
            return None

    def _go_alone(self, error: EngineError) -> None:
        """Play the plan on where that needs nobody else; where it does, the error stands."""
        if not self._course.stands_alone:
            raise error
        self._alone = True
        self._course.alone()
        self._voice.event(
            "alone",
            f"the plan runs on; stragglers are not answered and nothing is audited any more: {error}",
            reason=str(error),
        )

    def _book(self, passed: Sequence[Iteration]) -> None:
        for iteration in passed:
            mode = self._modes.pop(iteration.index)
            if iteration.start_s is not None and iteration.intervals:
                self._account.add(mode, iteration.start_s, iteration.end_s)
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
        """Stop working: clocks back at once; the others hear of it, then all leave."""
        if self._failed is not None:
            self.leave()
            return
        failed = self._failed = refusal_of(error)
        self._go_on_after(lambda: self._lookout.failed(failed))
        self._voice.say_here(f"off, training goes on at default clocks: {failed}")
        self._voice.event("disabled", reason=str(failed))
        self._tell_and_leave()

    def _follow(self) -> None:
        """Leave because another rank had to; it has said why."""
        self.leave()
        if self._raises:
            self._failed = EngineError("another rank of the job reported an error, see its log")
            raise self._failed

    def _tell_and_leave(self) -> None:
        if not self._alone:
            self._go_on_after(self._exchange.fail)
        self.leave()
