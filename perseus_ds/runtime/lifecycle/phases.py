"""The lifecycle of a job: warm-up, profile, plan, run with audits; each phase names the next one.

Every rank walks the same lifecycle. A phase decides from the count of iterations and from what all ranks
collected alike, never from what one rank alone can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy, FixedClock
from perseus_ds.runtime.measure.accounting import Mode, beside
from perseus_ds.runtime.measure.recorder import Iteration

DEFAULT_CLOCK = FixedClock(None)

_EVER = 1 << 30


@dataclass(frozen=True, slots=True)
class Step:
    """How one iteration is run, and what it counts for.

    ``rests``: whether the host's own time before it is spent at default clocks.
    """

    clock_policy: ClockPolicy = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER
    rests: bool = False


ASIDE = Step()
"""Default clocks, counted for nothing."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known when iteration ``index`` has ended.

    ``passed`` are those that the device has finished since. ``iteration_s`` is how long the slowest rank's
    last one took, None where not all ranks know theirs.
    """

    index: int
    passed: Sequence[Iteration]
    iteration_s: float | None


class Phase:
    """What iterations are run by: ``step`` is the coming one's, `following` what comes after it."""

    step: Step = ASIDE

    def begins(self, index: int) -> None:
        """Iteration ``index`` begins, and is run by ``step``."""

    def parted(self) -> None:
        """Leave nothing under way: the other ranks do not answer, and this phase is not gone on with."""

    def following(self, ended: Ended) -> Phase:  # noqa: ARG002  # most phases stay, whatever happened
        """The phase of the next iteration: this one, unless a phase overrides it."""
        return self


class WarmUp(Phase):
    """Leave the first iterations alone, then open with a known iteration time.

    What opens may be done ``ahead``: in so many of them, of a duration, but not in the first.
    """

    def __init__(
        self,
        iterations: int,
        opens: Callable[[float], Phase],
        *,
        ahead: Callable[[float], int] = lambda _: 0,
    ) -> None:
        self._left = iterations
        self._opens = opens
        self._ahead = ahead

    def following(self, ended: Ended) -> Phase:
        """Open when enough iterations have passed and their duration is known."""
        self._left -= 1
        if ended.iteration_s is None or self._left > self._ahead(ended.iteration_s):
            return self
        return self._opens(ended.iteration_s)


class Unplanned(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    step = Step(mode=Mode.BASELINE)


class Planning(Phase):
    """Train on at default clocks until the plan is there: who asked for it brings what follows."""

    step = Step(rests=True)


class Walk(Protocol):
    """Clocks to be measured one after the other, this rank's among them."""

    @property
    def clock_mhz(self) -> int:
        """The clock that this rank measures now."""

    @property
    def finished(self) -> bool:
        """Whether all ranks are through."""


class Profiling(Phase):
    """Measure a few iterations at one clock after another.

    The first iteration at a new clock is not measured: the switch falls into it. So it is with the first one
    after something else ran on the engine (an evaluation). Before the first clock ``settling`` iterations are
    not, in which the GPU warms up. A window that ``measured`` finds too short to show anything is measured
    again, twice as long.
    """

    def __init__(
        self,
        sweep: Walk,
        iterations: int,
        *,
        measured: Callable[[int, Sequence[Iteration]], bool],
        then: Callable[[], Phase],
        policy_at: Callable[[int], ClockPolicy] = FixedClock,
        settling: int = 1,
    ) -> None:
        self._sweep = sweep
        self._policy_at = policy_at
        self._iterations = iterations
        self._measured = measured
        self._then = then
        self._window: list[Iteration] = []
        self._first: int | None = None
        self._settling = settling
        self.step = Step(policy_at(sweep.clock_mhz))

    def following(self, ended: Ended) -> Phase:
        """Go on to the next clock when the window is full, and out when the sweep is finished."""
        if self._first is None:
            self._first, self._settling = ended.index + self._settling, 1
        self._window.extend(i for i in ended.passed if i.index >= self._first and not i.resumed)
        window = [i for i in self._window if i.index < ended.index][: self._iterations]
        if len(window) < self._iterations:
            return self
        self._window, self._first = [], None
        if not self._measured(self._sweep.clock_mhz, window):
            self._iterations *= 2
            return self
        if self._sweep.finished:
            return self._then()
        self.step = Step(self._policy_at(self._sweep.clock_mhz))
        return self


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Some iterations: what they count for, whether the plan is run, whether an audit is published first.

    One that ``settles`` lasts as long as the GPU's temperature needs.
    """

    mode: Mode
    iterations: int
    planned: bool
    publishes: bool = False
    settles: bool = False


class Running(Phase):
    """Run the plan; every so often a few iterations at default clocks, so that the saving is measured.

    The iteration in which clocks change counts for neither side. Nor do those in which the GPU still has the
    other side's temperature (``settling`` of them, at most a fifth of an audit's distance). Those beside a
    straggler or under a power ceiling count for sides of their own. The first audit comes early, so that a
    measured figure does; their distance varies. What is ``audited`` may ask for another plan.
    """

    def __init__(
        self,
        active_plan: ActivePlan,
        *,
        every_iterations: int,
        audit_iterations: int,
        audited: Callable[[], ActivePlan | None],
        settling: int = 1,
        seed: int = 0,
    ) -> None:
        self.active_plan = active_plan
        self._every = every_iterations
        self._audit = audit_iterations
        self._audited = audited
        self._settling = min(settling, every_iterations // 5)
        self._random = Random(seed)  # noqa: S311 - so that all ranks spread alike
        self._coming = self._stretches()
        self._enter(next(self._coming))
        self._ran_plan = False
        self._waits = False
        self.step = self._next(changed=True)

    def begins(self, index: int) -> None:
        """Note that this iteration is run by the plan, unless clocks have only just changed to it."""
        if self._ran_plan:
            self.active_plan.will_run(index)

    def following(self, ended: Ended) -> Phase:
        """Stay; move on within the cycle of plan and audit."""
        changed = self._postpones() or self.active_plan.changed_after(ended.index)
        self._left -= 1
        if self._left == 0:
            self._enter(next(self._coming))
            if self._present.publishes and (other := self._audited()) is not None:
                self.active_plan.close()
                self.active_plan, changed = other, True
        self.step = self._next(changed=changed)
        self._ran_plan = self._present.planned
        return self

    def alone(self) -> None:
        """Run the objective's plan on without audits: the other ranks do not answer any more."""
        self.active_plan.alone()
        self._coming = iter(())
        self._enter(_Stretch(Mode.PERSEUS, _EVER, planned=True))
        self.step = self._next(changed=True)

    def _postpones(self) -> bool:
        """Audit nothing while default clocks would break a power ceiling; return whether that ends an audit.

        The cycle begins anew when the ceiling is over.
        """
        waited, self._waits = self._waits, self.active_plan.forbids_default
        if waited == self._waits:
            return False
        was_planned = self._present.planned
        if self._waits:
            self._enter(_Stretch(Mode.PERSEUS, _EVER, planned=True))
        else:
            self._coming = self._stretches(early=False)
            self._enter(next(self._coming))
            self._left += 1
        return not was_planned

    def _enter(self, stretch: _Stretch) -> None:
        self._present = stretch
        self._left = max(stretch.iterations, self._settling) if stretch.settles else stretch.iterations

    def _next(self, *, changed: bool) -> Step:
        planned = self._present.planned
        mode = Mode.NEITHER if changed and planned else self._present.mode
        if planned and not changed and self.active_plan.capped:
            mode = Mode.PERSEUS_CAPPED
        return Step(
            self.active_plan if planned else DEFAULT_CLOCK,
            beside(mode) if self.active_plan.has_slack else mode,
            rests=True,
        )

    def _spread(self, every: int) -> int:
        """Vary the distance of audits by a third, so that they are in step with nothing that recurs."""
        return max(1, every + self._random.randint(-(every // 3), every // 3))

    def _stretches(self, *, early: bool = True) -> Iterator[_Stretch]:
        every = min(self._every, 2 * self._audit) if early else self._every
        yield _Stretch(Mode.NEITHER, 1, planned=True, settles=True)
        while self._every:
            yield _Stretch(Mode.PERSEUS, self._spread(every), planned=True)
            yield _Stretch(Mode.NEITHER, 1, planned=False, settles=True)
            yield _Stretch(Mode.BASELINE, self._audit, planned=False)
            yield _Stretch(Mode.NEITHER, 2, planned=True, settles=True)
            yield _Stretch(Mode.PERSEUS, 1, planned=True, publishes=True)
            every = self._every
        while True:
            yield _Stretch(Mode.PERSEUS, _EVER, planned=True)
