"""Run each iteration by a plan of its own that follows the loads of its microbatches, once it is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.following import AnswerFrame, QuestionFrame
from perseus_ds.runtime.comm.replica_broadcast import ReplicaBroadcast
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule
from perseus_ds.runtime.control.iteration_planner import IterationPlanner
from perseus_ds.schedule import Load

_PATIENCE_S = 300.0  # where time passes only while devices are used
_LATE = 20  # iterations in a row without a plan in time, and
_LATE_S = 60.0  # as long: it takes too long

Floats = NDArray[np.float64]


@dataclass(slots=True)
class _Question:
    """How much longer than at the objective's plan, and when in the iteration an answer may be followed."""

    stretch: float
    due_s: float
    answer: Floats | None = None


class LoadFollower:
    """This rank's part of its replica's plans for single iterations.

    All ranks of a replica know alike what is asked when. The first of them has the ``planner``, knows the
    loads, and brings the answer to the others. Each runs its part from the next computation on, and what it
    ran before until then. A plan that is late, or that could not be made, changes nothing.

    ``waits``: on devices of which time passes only while they are used, answers are waited for. ``complain``
    logs one line where nothing is planned any more: the planner has failed, or was late for ``late_s``.
    """

    def __init__(
        self,
        broadcast: ReplicaBroadcast,
        frame: AnswerFrame,
        planner: IterationPlanner | None,
        *,
        rank: int,
        waits: bool,
        complain: Callable[[str], None],
        late_s: float = _LATE_S,
    ) -> None:
        self._broadcast = broadcast
        self._frame = frame
        self._planner = planner
        self._leads = planner is not None
        self._rank = rank
        self._waits = waits
        self._complain = complain
        self._loads: Sequence[Load] | None = None
        self._questions: list[_Question] = []
        self._earlier = self._come = 0
        self._follows: tuple[int, bool] = (-1, False)
        self._late = self._asked = self._followed = 0
        self._late_s, self._in_time_s = late_s, time.monotonic()
        self.schedule: ClockSchedule | None = None
        self.left_s: Floats | None = None

    @property
    def knows_loads(self) -> bool:
        """Whether this rank knows what its replica's present iteration works on, and can ask for a plan."""
        return self._planner is not None and self._loads is not None

    @property
    def account(self) -> Mapping[str, int]:
        """In how many iterations a plan was asked for, and in how many it came while they ran."""
        return {"load_iterations": self._asked, "followed_iterations": self._followed}

    def meet(self, loads: Sequence[Load] | None) -> None:
        """Take in the loads of the coming iteration's microbatches, where they are known."""
        self._loads = loads if loads is not None and len(loads) == self._frame.microbatches else None

    def begins(self) -> None:
        """An iteration begins in which plans may be asked for.

        Raises:
            EngineError: the first rank of the replica is silent.
        """
        self._earlier += len(self._questions)
        self._questions, self._come, self._follows = [], 0, (-1, False)
        self.schedule = self.left_s = None
        self._broadcast.begin()

    def ask(self, stretch: float, *, on_pace: bool, due_s: float = 0.0) -> None:
        """Ask for a plan that takes so many times longer, unless it was asked for last; alike on all ranks.

        Raises:
            EngineError: the others cannot be reached.
        """
        if self._questions and self._questions[-1].stretch == stretch:
            return
        self._questions.append(_Question(stretch, due_s))
        if not self._leads:
            self._broadcast.expect()
            return
        number, planner, loads = self._earlier + len(self._questions), self._planner, self._loads
        if (
            planner is None
            or loads is None
            or not planner.ask(QuestionFrame(number, stretch, on_pace, loads))
        ):
            self._questions[-1].answer = self._frame.none(number)

    def look(self, elapsed_s: float) -> bool:
        """Take in what has come; return whether another plan is followed from now on.

        Raises:
            EngineError: the first rank of the replica is silent, where that is waited for.
        """
        self.take_in()
        due = [place for place, one in enumerate(self._questions) if one.due_s <= elapsed_s]
        if not due:
            return False
        follows = due[-1], self._come > due[-1]
        if follows == self._follows:
            return False
        self._follows, before = follows, self.schedule
        answer = self._questions[due[-1]].answer if follows[1] else None
        self.schedule = None if answer is None else self._read(answer, self._questions[due[-1]].stretch)
        return self.schedule is not before

    def take_in(self) -> None:
        """Have the first rank bring what has been planned, in the order of asking, and the others take it.

        Raises:
            EngineError: the others cannot be reached.
        """
        while self._come < len(self._questions):
            answer = self._planned() if self._leads else self._broadcast.come(self._come, waits=self._waits)
            if answer is None:
                return
            self._questions[self._come].answer = answer
            self._come += 1
            if self._leads:
                self._broadcast.bring(answer)

    def ends(self) -> None:
        """The iteration is over: what has not come does not come any more.

        Raises:
            EngineError: the others cannot be reached.
        """
        if not self._questions:
            return
        self._asked += 1
        in_time = any(one.answer is not None and self._frame.time_s(one.answer) for one in self._questions)
        self._followed += in_time
        if not self._leads:
            return
        while self._come < len(self._questions):
            self._broadcast.bring(self._frame.none(0))
            self._come += 1
        if in_time or self._loads is None:
            self._late, self._in_time_s = 0, time.monotonic()
            return
        self._late += 1
        if self._late >= _LATE and time.monotonic() - self._in_time_s >= self._late_s:
            self._give_up(f"none of the last {self._late} came while its iteration ran")

    def forget(self) -> None:
        """Follow no plan of the iteration that is over."""
        self.schedule = self.left_s = None

    def close(self) -> None:
        """Ask no more; safe to call twice."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        self._broadcast.close()

    def _planned(self) -> Floats | None:
        """What was planned for the next question; none where no more plans are made."""
        question, number = self._questions[self._come], self._earlier + self._come + 1
        if question.answer is None and self._planner is not None:
            question.answer = self._planner.answer(number, patience_s=_PATIENCE_S if self._waits else 0.0)
        if self._planner is not None and self._planner.error is not None:
            self._give_up(self._planner.error)
        return question.answer if self._planner is not None else self._frame.none(number)

    def _read(self, answer: Floats, stretch: float) -> ClockSchedule | None:
        if self._frame.time_s(answer) is None:
            return None
        self.left_s = self._frame.left_s(answer) / stretch
        own = self._frame.of(answer, self._rank)
        return ClockSchedule.of(own.requests, own.opening, self._frame.computations[self._rank])

    def _give_up(self, why: str) -> None:
        if self._planner is not None:
            self._complain(f"plans do not follow the loads of microbatches any more: {why}")
            self._planner.close()
            self._planner = None
