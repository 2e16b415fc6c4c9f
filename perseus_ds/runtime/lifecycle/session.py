"""One job's life with us: listen to the engine, keep what fails from it, and leave when asked to."""

from __future__ import annotations

from collections.abc import Callable

from perseus_ds.errors import as_perseus_error
from perseus_ds.runtime.accounting import Mode, RankBooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.conflicts import ConflictMonitor
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.lifecycle.leaving import Ending, ended, failed
from perseus_ds.runtime.lifecycle.lifecycle import Lifecycle
from perseus_ds.runtime.lifecycle.phases import DEFAULT_CLOCK
from perseus_ds.runtime.recorder import Recorder
from perseus_ds.schedule import Kind, Load

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
        books: RankBooks,
        conflict_monitor: ConflictMonitor,
        log: EventLog,
        raises: bool,
    ) -> None:
        self.lifecycle = lifecycle
        self._recorder = recorder
        self._sequencer = sequencer
        self._books = books
        self._conflict_monitor = conflict_monitor
        self._log = log
        self._raises = raises
        self._mode = Mode.NEITHER
        self._listens = False
        self._given_back: list[Callable[[], None]] = []
        self._left: Ending | None = None

    @property
    def left(self) -> bool:
        """Whether the engine runs without us again."""
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
        step = self.lifecycle.step
        self._mode = step.mode
        unsettled = self._sequencer.take_turn() or self._recorder.interrupted
        settling_s = _SETTLED_AFTER_LATENCIES * self._sequencer.latency_s
        self._recorder.begin(job, settling_s=settling_s if unsettled else 0.0, loads=batch.loads)
        self._sequencer.begin(step.clock_policy)
        self._listens = True

    def _stand_aside(self) -> None:
        self._mode = Mode.NEITHER
        self._sequencer.take_turn()
        self._recorder.interrupt()
        self._sequencer.begin(DEFAULT_CLOCK)

    def _take_stock(self) -> None:
        for lower in (self._conflict_monitor.check(), self._sequencer.error, self._books.error):
            if lower is not None:
                raise lower
        index = self._recorder.finish()
        known = self._conflict_monitor.stored(now=self._sequencer.stored)
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
            self._go_on_after(lambda: self._conflict_monitor.failed(error))
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
