"""The course of a job: warm-up, profile, plan, run with audits; each phase says what comes next.

Every rank walks the same course: a phase decides from the count of iterations and from what all ranks
collected alike, never from what one rank alone can see.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.engine.account import Mode
from perseus_ds.engine.conductor import Planned, Score, Steady, Step
from perseus_ds.engine.recorder import Iteration
from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import Sweep

DEFAULT_CLOCK = Steady(None)


@dataclass(frozen=True, slots=True)
class News:
    """What all ranks told of the iteration before."""

    failed: bool
    plan_ready: bool
    iteration_s: float | None
    conflicts: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> News:
        """Read the collected rows: failed, plan ready, duration (NaN where unknown), conflicts seen."""
        longest = float(np.max(numbers[:, 2]))
        return cls(
            failed=bool(numbers[:, 0].any()),
            plan_ready=bool(numbers[:, 1].any()),
            iteration_s=None if math.isnan(longest) else longest,
            conflicts=tuple(map(int, numbers[:, 3])),
        )


class Phase(ABC):
    """How the coming iteration is played, what it counts for, and what follows it."""

    score: Score = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER

    @abstractmethod
    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """The phase of the next iteration.

        ``index`` is the iteration that just ended, ``passed`` those that the device has finished since.
        """


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
        sweep: Sweep,
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


class Running(Phase):
    """Play the plan; every so often a few iterations at default clocks, so that the saving is measured.

    The iteration in which clocks change counts for neither side. The first audit comes early, so that a
    measured figure does.
    """

    def __init__(
        self,
        planned: Planned,
        *,
        every_iterations: int,
        audit_iterations: int,
        audited: Callable[[], None],
    ) -> None:
        self._planned = planned
        self._every = every_iterations
        self._audit = audit_iterations
        self._audited = audited
        self._left = 1
        self._acts = self._course()
        self._next_act()

    def following(self, index: int, passed: Sequence[Iteration], news: News | None) -> Phase:
        """Stay; move on within the cycle of plan and audit."""
        del index, passed, news
        self._left -= 1
        if self._left == 0:
            self._next_act()
        return self

    def _next_act(self) -> None:
        self.score, self.mode, self._left, told = next(self._acts)
        if told:
            self._audited()

    def _course(self) -> Iterator[tuple[Score, Mode, int, bool]]:
        """Yield score, mode, number of iterations, and whether an audit was just completed."""
        every = min(self._every, 2 * self._audit) if self._every else 0
        yield self._planned, Mode.NEITHER, 1, False
        while self._every:
            yield self._planned, Mode.PERSEUS, every, False
            yield DEFAULT_CLOCK, Mode.NEITHER, 1, False
            yield DEFAULT_CLOCK, Mode.BASELINE, self._audit, False
            yield self._planned, Mode.NEITHER, 2, False
            yield self._planned, Mode.PERSEUS, 1, True
            every = self._every
        while True:
            yield self._planned, Mode.PERSEUS, 1 << 30, False


def planned_score(plan: FrequencyPlan, *, stage: int, lead_s: float) -> Planned:
    """One stage's part of a plan: clock and duration of every computation in running order."""
    choices = plan.choices()
    steps = []
    for instruction in plan.of.computations():
        if instruction.stage == stage:
            options = plan.of.options[stage, instruction.kind]
            option = choices[instruction]
            steps.append(Step(int(options.clock_mhz[option]), float(options.time_s[option])))
    return Planned(tuple(steps), lead_s)
