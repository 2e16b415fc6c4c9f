"""The course of a job: warm-up, profile, plan, run with audits; each phase says what comes next.

Every rank walks the same course: a phase decides from the count of iterations and from what all ranks
collected alike, never from what one rank alone can see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from perseus_ds.runtime.comm.status import News
from perseus_ds.runtime.control.active_plan import Part
from perseus_ds.runtime.control.clock_sequencer import Score, Steady
from perseus_ds.runtime.measure.accounting import Mode, beside
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.measure.sweeps import Sweeps

DEFAULT_CLOCK = Steady(None)

_EVER = 1 << 30


class Phase(ABC):
    """How the coming iteration is played, what it counts for, and what follows it."""

    score: Score = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER

    @abstractmethod
    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """The phase of the next iteration.

        ``index`` is the iteration that just ended, ``passed`` those that the device has finished since.
        """

    @property
    def stands_alone(self) -> bool:
        """Whether this can go on without the other ranks."""
        return False

    def alone(self) -> None:  # noqa: B027 - only what stands alone is left alone
        """Go on without the other ranks, who are not heard any more."""


class WarmUp(Phase):
    """Leave the first iterations alone, then open with a known iteration time."""

    def __init__(self, iterations: int, opening: Callable[[float], Phase]) -> None:
        self._left = iterations
        self._opening = opening

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Open when enough iterations have passed and their duration is known."""
        del index, passed
        self._left -= 1
        if self._left > 0 or news is None or news.iteration_s is None:
            return self
        return self._opening(news.iteration_s)


class Rest(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    mode = Mode.BASELINE

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Stay."""
        del index, passed, news
        return self


class Profiling(Phase):
    """Measure a few iterations at one clock after another.

    The first iteration at a new clock is not measured: the switch falls into it. A window that something
    else broke into (an evaluation) is measured again.
    """

    def __init__(
        self,
        sweep: Sweeps,
        iterations: int,
        *,
        measured: Callable[[int, Sequence[Iteration]], None],
        then: Callable[[], Phase],
        score_at: Callable[[int], Score] = Steady,
    ) -> None:
        self._sweep = sweep
        self._score_at = score_at
        self._iterations = iterations
        self._measured = measured
        self._then = then
        self._window: list[Iteration] = []
        self._first: int | None = None
        self.score = score_at(sweep.clock_mhz)

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Go on to the next clock when the window is full, and out when the sweep is finished."""
        del news
        if self._first is None:
            self._first = index + 1
        self._window.extend(i for i in passed if i.index >= self._first)
        if index < self._first + self._iterations:
            return self
        window = self._window[: self._iterations]
        self._window, self._first = [], None
        if any(iteration.start_s is None for iteration in window):
            return self
        self._measured(self._sweep.clock_mhz, window)
        if self._sweep.finished:
            return self._then()
        self.score = self._score_at(self._sweep.clock_mhz)
        return self


class Planning(Phase):
    """Train on at default clocks until the plan is there."""

    def __init__(self, then: Callable[[], Phase]) -> None:
        self._then = then

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Run as soon as all have heard that the plan is ready."""
        del index, passed
        return self._then() if news is not None and news.plan_ready else self


@dataclass(frozen=True, slots=True)
class _Act:
    """Some iterations: what they count for, whether the plan is played, whether an audit is told first."""

    mode: Mode
    iterations: int
    planned: bool
    tells: bool = False


class Running(Phase):
    """Play the plan; every so often a few iterations at default clocks, so that the saving is measured.

    The iteration in which clocks change counts for neither side, those beside a straggler for sides of
    their own. The first audit comes early, so that a measured figure does.
    """

    def __init__(
        self,
        part: Part,
        *,
        every_iterations: int,
        audit_iterations: int,
        audited: Callable[[], None],
    ) -> None:
        self._part = part
        self._every = every_iterations
        self._audit = audit_iterations
        self._audited = audited
        self._acts = self._course()
        self._act = next(self._acts)
        self._left = self._act.iterations
        self._set_out(changed=True)

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Stay; move on within the cycle of plan and audit."""
        del passed
        changed = news is not None and self._part.hear(index, news)
        self._left -= 1
        if self._left == 0:
            self._act = next(self._acts)
            self._left = self._act.iterations
            if self._act.tells:
                self._audited()
        self._set_out(changed=changed)
        if self._act.planned:
            self._part.will_play(index + 1)
        return self

    @property
    def stands_alone(self) -> bool:
        """A plan needs nobody else once it is there."""
        return True

    def alone(self) -> None:
        """Play the objective's plan on without audits: the other ranks are not heard any more."""
        self._part.alone()
        self._acts = iter(())
        self._act = _Act(Mode.PERSEUS, _EVER, planned=True)
        self._left = _EVER
        self._set_out(changed=True)

    def _set_out(self, *, changed: bool) -> None:
        self.score = self._part.score if self._act.planned else DEFAULT_CLOCK
        mode = Mode.NEITHER if changed and self._act.planned else self._act.mode
        self.mode = beside(mode) if self._part.waits else mode

    def _course(self) -> Iterator[_Act]:
        every = min(self._every, 2 * self._audit) if self._every else 0
        yield _Act(Mode.NEITHER, 1, planned=True)
        while self._every:
            yield _Act(Mode.PERSEUS, every, planned=True)
            yield _Act(Mode.NEITHER, 1, planned=False)
            yield _Act(Mode.BASELINE, self._audit, planned=False)
            yield _Act(Mode.NEITHER, 2, planned=True)
            yield _Act(Mode.PERSEUS, 1, planned=True, tells=True)
            every = self._every
        while True:
            yield _Act(Mode.PERSEUS, _EVER, planned=True)
