"""Correct clocks while a plan runs: how late a computation begins decides where and when its clock changes.

`ActivePlan` has a `FeedbackSchedule` instead of a `ClockSchedule` for the plan that has feedback. The look-up
is made by whoever sees the device pass: the clock thread on CUDA, the training thread in virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from perseus_ds.plan.feedback.policy import ClockTable
from perseus_ds.runtime.control.clock_requests import Ask, Corrected, Correction
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy, ClockSchedule, ClockSequencer


class Following:
    """How late one rank is in an iteration, computation after computation, and the clocks that follow.

    Moments are of the device's own time. One that was not seen, or lies before the one that it follows (a
    clock that jumped), leaves the lateness unknown. So it is for the computation after it. ``latency_s`` is
    how long a change takes: a correction that would come when the computation is over is not made.
    """

    def __init__(self, tables: Sequence[ClockTable], latency_s: float) -> None:
        self._tables = tables
        self._latency_s = latency_s
        self._begun_s = self._last_s = self._before_s = math.nan

    def begins(self, at_s: float, now_s: float) -> Corrected:  # noqa: ARG002 - a Correction
        """The iteration begins; nothing is late yet."""
        self._begun_s = self._last_s = at_s
        self._before_s = 0.0
        return _NOTHING

    def forget(self, at_s: float, now_s: float) -> Corrected:  # noqa: ARG002 - a Correction
        """When the iteration began is not known here."""
        self._begun_s = math.nan
        return _NOTHING

    def corrects(self, position: int, at_s: float, now_s: float) -> Corrected:
        """Look up the clock of the computation that began at ``at_s``; nothing where it would come too late.

        ``at_s`` is not finite where the moment was not seen. The clock to begin with is asked for once more:
        the computation before may have ended so early that it was not yet.
        Cost: at most 5 us.
        """
        table = self._tables[position]
        late_s = at_s - self._begun_s - table.begin_s if self._last_s <= at_s < math.inf else math.nan
        answer = table.decide(late_s, self._before_s)
        self._before_s, self._last_s = late_s, at_s
        then = Ask(answer.then_mhz, answer.after_s)
        asks: tuple[Ask, ...] = (Ask(answer.first_mhz), then) if answer.after_s else (then,)
        if math.isfinite(late_s) and now_s - at_s + self._latency_s > table.lasts_s + answer.later_s:
            asks = ()
        return Corrected(asks, answer.later_s)


_NOTHING = Corrected(())


class FeedbackSchedule(ClockPolicy):
    """Requests for the clocks that computations begin at, and a correction as each of them begins."""

    def __init__(self, ahead: ClockSchedule, following: Following) -> None:
        self._ahead = ahead
        self._begins: Correction = following.begins
        self._forget: Correction = following.forget
        self._corrects: list[Correction] = [
            partial(following.corrects, position) for position in range(len(ahead.during))
        ]

    def begins(self, sequencer: ClockSequencer) -> None:
        """Ask for the clock to begin with; lateness is counted from here."""
        sequencer.position = 0
        sequencer.correct(self._begins, *self._ahead.opening)

    def stands(self, sequencer: ClockSequencer) -> None:
        """Ask for what is in force here; how late this rank is nobody has counted."""
        sequencer.correct(self._forget)
        self._ahead.stands(sequencer)

    def before(self, sequencer: ClockSequencer) -> None:
        """Ask for what the lateness decides, and ahead for what comes next."""
        position = sequencer.position % len(self._corrects)
        sequencer.correct(self._corrects[position], *self._ahead.during[position])

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for what is due now that it is over."""
        self._ahead.after(sequencer)
