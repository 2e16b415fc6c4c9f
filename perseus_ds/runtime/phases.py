"""The lifecycle of a job: warm-up, profile, plan, run with audits; each phase names the next one.

Every rank walks the same lifecycle. A phase decides from the count of iterations and from what all ranks
collected alike, never from what one rank alone can see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from perseus_ds.device.clock_change import Steps, calibrating
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.profile.sweep import SweepPace, WindowLength
from perseus_ds.runtime.accounting import Mode, beside
from perseus_ds.runtime.active_plan import ActivePlan
from perseus_ds.runtime.clock_sequencer import DEFAULT_CLOCK, ClockSchedule, fixed_clock
from perseus_ds.runtime.clock_thread import ClockRequests, DeviceTask
from perseus_ds.runtime.context import Answer, JobContext, joined
from perseus_ds.runtime.pooling import MeasuredSweep
from perseus_ds.runtime.recorder import Iteration

_EVER = 1 << 30


@dataclass(frozen=True, slots=True)
class IterationSettings:
    """Settings of one iteration: the clocks that it runs by, and the account that it belongs to.

    ``plan`` brings the clocks of iterations that a plan runs, ``clocks`` are those of all others. ``rests``:
    whether the host's own time before it is spent at default clocks.
    """

    clocks: ClockSchedule = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER
    rests: bool = False
    plan: ActivePlan | None = None


DEFAULT_UNCOUNTED = IterationSettings()
"""Default clocks, counted for nothing."""


@dataclass(frozen=True, slots=True)
class IterationResult:
    """Result of iteration ``index``.

    ``passed`` are those that the device has finished since. ``iteration_s`` is how long the slowest rank's
    last one took, None where not all ranks know theirs.
    """

    index: int
    passed: Sequence[Iteration]
    iteration_s: float | None


class Phase:
    """A phase of the job: ``settings`` of the coming iteration, and `next_phase` after it."""

    settings: IterationSettings = DEFAULT_UNCOUNTED

    def begins(self, index: int) -> None:
        """Iteration ``index`` begins, and is run by ``settings``."""

    def parted(self) -> None:
        """Leave nothing under way: the other ranks do not answer, and this phase is not gone on with."""

    def next_phase(self, ended: IterationResult) -> Phase:  # noqa: ARG002  # most phases stay, whatever happened
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

    def next_phase(self, ended: IterationResult) -> Phase:
        """Open when enough iterations have passed and their duration is known."""
        self._left -= 1
        if ended.iteration_s is None or self._left > self._ahead(ended.iteration_s):
            return self
        return self._opens(ended.iteration_s)


class BaselineOnly(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    settings = IterationSettings(mode=Mode.BASELINE)


class Planning(Phase):
    """Train on at default clocks until the plan is there: who asked for it brings what follows."""

    settings = IterationSettings(rests=True)


class Profiling(Phase):
    """Measure a few iterations at one clock after another, with iterations at default clocks between them.

    A window lasts as many iterations as ``length`` asks for at its clock.

    Before the first clock ``settling`` iterations run at default clocks, in which the GPU warms up. Before
    each there are as many as ``pace`` asks for, and one at least, in which the last window becomes known.
    An iteration after something else ran on the engine (an evaluation) is not measured: clocks change within
    it. A window that ``measured`` finds too short to show anything is measured
    again, twice as long.
    """

    def __init__(
        self,
        sweep: MeasuredSweep,
        length: WindowLength,
        *,
        measured: Callable[[int, Sequence[Iteration]], bool],
        then: Callable[[], Phase],
        sets_clocks: bool = True,
        settling: int = 1,
        pace: SweepPace | None = None,
    ) -> None:
        self._sweep = sweep
        self._sets_clocks = sets_clocks
        self._length = length
        self._longer = 1
        self._measured = measured
        self._then = then
        self._pace = pace or SweepPace(math.inf)
        self._window: list[Iteration] = []
        self._resting = max(1, settling)
        self._runs = range(0)
        self._passed = -1
        self._pace.record_expected(self._resting)
        self._iterations = 0
        self._prepare()

    def next_phase(self, ended: IterationResult) -> Phase:
        """Go on to the next clock when the window is full, and out when the sweep is finished."""
        self._take(ended.passed)
        if ended.iteration_s is not None:
            # its time is that of the iteration before
            self._pace.record_measured(ended.iteration_s, resting=ended.index - 1 not in self._runs)
        if self._resting:
            self._resting -= 1
            if not self._resting:
                self._run(ended.index + 1, self._iterations)
        elif ended.index == self._runs.stop - 1:
            self.settings = DEFAULT_UNCOUNTED
        elif ended.index >= self._runs.stop:
            self._pace.record_expected(1)
            if self._passed >= self._runs.stop - 1:
                return self._judged(ended.index)
        return self

    def _judged(self, index: int) -> Phase:
        """Take the window, all of which has passed; iteration ``index`` has just ended."""
        missing = self._iterations - len(self._window)
        if missing > 0:
            self._run(index + 1, missing + 1)
            return self
        window, self._window = self._window[: self._iterations], []
        if not self._measured(self._sweep.sweep.clock_mhz, window):
            self._longer *= 2
        elif self._sweep.sweep.finished:
            return self._then()
        self._prepare()
        if not self._resting:
            self._run(index + 1, self._iterations)
        return self

    def _prepare(self) -> None:
        """Decide how long the next window is, and rest before it."""
        slower = self._sweep.slower
        self._iterations = self._longer * self._length.at(self._pace.slowdown_factor(slower))
        self._rest(self._pace.baseline_iterations_needed(self._iterations, slower))

    def _take(self, passed: Sequence[Iteration]) -> None:
        """Keep what ran at the clock."""
        for one in passed:
            self._passed = one.index
            if one.index in self._runs:
                self._pace.broken += one.resumed
                if not one.resumed:
                    self._window.append(one)

    def _run(self, first: int, iterations: int) -> None:
        """Run the clock from the next iteration on."""
        self._pace.record_expected(iterations, self._sweep.slower)
        self._runs = range(first, first + iterations)
        clock_mhz = self._sweep.sweep.clock_mhz if self._sets_clocks else None
        self.settings = IterationSettings(fixed_clock(clock_mhz))

    def _rest(self, iterations: int) -> None:
        """Run default clocks for some iterations from the next one on."""
        self._pace.record_expected(iterations)
        self._resting += iterations
        self.settings = DEFAULT_UNCOUNTED


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
    straggler count for sides of their own, those under a power cap for none. The first audit
    comes early, so that a measured figure does; their distance varies. What is ``audited`` may ask for
    another plan.
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
        self.settings = self._next(changed=True)

    def begins(self, index: int) -> None:
        """Note that this iteration is run by the plan, unless clocks have only just changed to it."""
        if self._ran_plan:
            self.active_plan.will_run(index)

    def next_phase(self, ended: IterationResult) -> Phase:
        """Stay; move on within the cycle of plan and audit."""
        changed = self._postpones() or self.active_plan.changed_after(ended.index)
        self._left -= 1
        if self._left == 0:
            self._enter(next(self._coming))
            if self._present.publishes and (other := self._audited()) is not None:
                self.active_plan.close()
                self.active_plan, changed = other, True
        self.settings = self._next(changed=changed)
        self._ran_plan = self._present.planned
        return self

    def alone(self) -> None:
        """Run the objective's plan on without audits: the other ranks do not answer any more."""
        self.active_plan.alone()
        self._coming = iter(())
        self._enter(_Stretch(Mode.PERSEUS, _EVER, planned=True))
        self.settings = self._next(changed=True)

    def _postpones(self) -> bool:
        """Audit nothing while default clocks would break a power cap; return whether that ends an audit.

        The cycle begins anew when the cap is over.
        """
        waited, self._waits = self._waits, self.active_plan.power_capped
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

    def _next(self, *, changed: bool) -> IterationSettings:
        planned = self._present.planned
        leaves_out = planned and (changed or self.active_plan.power_capped)
        mode = Mode.NEITHER if leaves_out else self._present.mode
        return IterationSettings(
            mode=beside(mode) if self.active_plan.has_slack else mode,
            rests=True,
            plan=self.active_plan if planned else None,
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


# How long this job's GPUs take to change a clock, found out by its first iterations, under their own load.
#
# An idle GPU clocks down by itself, and shows nothing: that is what a GPU before the first iteration is.

_ALONE_S = 0.4
_CHANGES = 8
_BEAT_S = 0.05
_AGAIN_S = 0.02
_ROUNDS = 3
_SILENT = DeviceUnavailableError("the driver did not answer in time")


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Whose clock is measured, by whom, and who is informed what this rank reckons with from then on."""

    context: JobContext
    gpu: Gpu
    tasks: ClockRequests
    found: Callable[[Capabilities], None]

    def iterations(self, iteration_s: float, *, together: bool | None = None) -> int:
        """Return how many iterations it takes, alone, together or (None) both, if changes are as declared."""
        if together is None:
            all_at_once = self.iterations(iteration_s, together=True) if self.context.channel.size > 1 else 0
            return self.iterations(iteration_s, together=False) + all_at_once
        change_s = (self.context.capabilities.switch_latency_s or 0.0) + _BEAT_S * together
        return max(1, math.ceil(max(_ALONE_S, _CHANGES * change_s) / iteration_s))

    def phase(self, iteration_s: float, opens: Callable[[float], Phase]) -> Phase:
        """Begin, with what iterations take at default clocks; ``opens`` what follows, with the same."""
        return Calibrating(self, iteration_s, opens)


class Measurement:
    """A GPU's calibration in steps, again and again until it shows a latency; ``answer`` is the latest."""

    def __init__(self, gpu: Gpu, *, in_step: bool) -> None:
        self._gpu = gpu
        self._in_step = in_step
        self.answer: Answer = _SILENT
        self.done = False

    def steps(self) -> Steps[None]:
        """Measure; the GPU may do nothing just now, and work a moment later."""
        try:
            while not self.done:
                self.answer = yield from calibrating(self._gpu, in_step=self._in_step)
                self.done = self.answer.switch_latency_s is not None
                yield _AGAIN_S
        except DeviceError as error:
            self.answer, self.done = error, True


class Calibrating(Phase):
    """Measure rank 0's GPU alone, then all at once, while iterations run; then open with what was found.

    Calls of the GPUs of one node queue in the driver, so that a clock which all change at once comes later.
    ``together_s`` is the longest that any rank waited, and the latency that clocks are asked for ahead by.
    All ranks count the same iterations and exchange where they are after each round of them. A GPU that has
    shown nothing after a few is reckoned with as it declares, and so is a driver that hangs.

    Cost: about a second's iterations, which count for nothing; one exchange for each round.
    """

    def __init__(self, calibrator: Calibrator, iteration_s: float, opens: Callable[[float], Phase]) -> None:
        self._calibrator = calibrator
        self._channel = calibrator.context.channel
        self._iteration_s = iteration_s
        self._opens = opens
        self._alone: Answer | None = None
        self._measurement: Measurement | None = None
        self._task: DeviceTask | None = None
        self._begin_stage()

    def begins(self, index: int) -> None:  # noqa: ARG002  # whichever is the first of a stage
        """Begin to measure with the first iteration of a stage."""
        together = self._alone is not None
        if self._measurement is None and (together or self._channel.rank == 0):
            self._measurement = Measurement(self._calibrator.gpu, in_step=together)
            self._task = DeviceTask(self._measurement.steps())
            self._calibrator.tasks.run(self._task)

    def next_phase(self, ended: IterationResult) -> Phase:
        """See at the end of each round how far all are."""
        self._iteration_s = min(self._iteration_s, ended.iteration_s or math.inf)
        self._left -= 1
        if self._left > 0:
            return self
        answers = self._answers()
        if self._rounds_left and not all(done for _, done in answers):
            self._begin_round()
            return self
        self.parted()
        if self._alone is None:
            self._alone = answers[0][0]
            if self._channel.size > 1:
                self._begin_stage()
                return self
        self._take_in(self._alone, [answer for answer, _ in answers])
        return self._opens(self._iteration_s)

    def parted(self) -> None:
        """Change no clock any more."""
        if self._task is not None:
            self._calibrator.tasks.stop(self._task)

    def _answers(self) -> list[tuple[Answer, bool]]:
        """Return what those who measure have found by now, and whether that is all; collective."""
        mine = self._measurement and (self._measurement.answer, self._measurement.done)
        if self._alone is None:
            return [cast("tuple[Answer, bool]", self._channel.broadcast(mine))]
        return cast("list[tuple[Answer, bool]]", self._channel.gather(mine))

    def _begin_stage(self) -> None:
        self._measurement = self._task = None
        self._rounds_left = _ROUNDS
        self._begin_round()

    def _begin_round(self) -> None:
        self._rounds_left -= 1
        self._left = self._calibrator.iterations(self._iteration_s, together=self._alone is not None)

    def _take_in(self, alone: Answer, everyone: Sequence[Answer]) -> None:
        context = self._calibrator.context
        able, found = joined(context.capabilities, alone, everyone, context.log)
        context.reckoning.able, context.reckoning.calibration = able, found
        self._calibrator.found(able)
