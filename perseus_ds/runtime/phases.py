"""Phases of a job, one after the other; each names the next one.

    WarmUp --> Calibrating --> Opened: by the start decision
      | mode observe                |-- a plan fits ---------------------------> Running
      v                             |-- a profile fits -------> Planning ------> Running
    Observing --> BaselineOnly      '-- nothing fits --> Sweeping --> Profiled --> Planning --> Running

After an iteration a phase gets what the device has finished and the status of the job, and returns the phase
of the next one, whose ``settings`` say how it runs. All ranks change phase at the same iteration: a phase
decides by the count of iterations and by what was reduced or gathered over all ranks, never by what one rank
sees.

From `Opened` on, batches of every size have a phase of their own (`Session`). `Sweeping` and `Observing` are
in `sweep.py`, `Running` is in `planned_run.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from perseus_ds.device.clock_change import Steps, calibration_steps
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.profile.sweep import SweepPace, WindowLength
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.active_plan import ActivePlan
from perseus_ds.runtime.clock_sequencer import DEFAULT_CLOCK, ClockSchedule, fixed_clock
from perseus_ds.runtime.clock_thread import DeviceTask
from perseus_ds.runtime.context import Answer, JobContext, joined
from perseus_ds.runtime.kernel_tracing import SETTLING
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.status import JobStatus


@dataclass(frozen=True, slots=True)
class IterationSettings:
    """Settings of one iteration: the clocks that it runs by, and the account that it belongs to.

    ``plan`` brings the clocks of iterations that a plan runs, ``clocks`` are those of all others.
    ``settled``: the plan was in force before. ``rests``: the host's own time after it is spent at default
    clocks. ``task`` is done at the device from its begin on, for as long as settings name it.
    """

    clocks: ClockSchedule = DEFAULT_CLOCK
    mode: Mode = Mode.NEITHER
    rests: bool = False
    plan: ActivePlan | None = None
    settled: bool = False
    task: DeviceTask | None = None


DEFAULT_UNCOUNTED = IterationSettings()
"""Default clocks, counted for nothing."""


class Phase:
    """A phase of the job: ``settings`` of the coming iteration, and `next` after it."""

    settings: IterationSettings = DEFAULT_UNCOUNTED

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Return the phase after iteration ``index``: this one, unless a phase overrides it.

        ``passed`` are the iterations that the device has finished since the last call, ``job`` the status of
        all ranks in the iteration before, None where it is not known.
        """
        del index, passed, job
        return self


class BaselineOnly(Phase):
    """Nothing more to do: default clocks, counted as baseline."""

    settings = IterationSettings(mode=Mode.BASELINE)


class Planning(Phase):
    """Train on at default clocks until the plan arrives, which `BatchPlans` brings."""

    settings = IterationSettings(rests=True)


@dataclass(frozen=True)
class Opened(Phase):
    """Warm-up is over: the session goes on as the start decision says.

    ``iteration_s`` is how long an iteration takes, ``found`` what calibration has found of this rank's GPU.
    """

    iteration_s: float
    found: Capabilities | None = None


class Profiled(Phase):
    """The profile is written: the session goes on with a plan for the batches that all ranks run."""


class WarmUp(Phase):
    """Leave the first iterations alone, until their duration is known; calibrate ``gpu`` in the last of them.

    Where kernels are traced the GPU is calibrated after them, since traced iterations run at default clocks.
    """

    def __init__(self, context: JobContext, gpu: Gpu | None) -> None:
        self._context, self._gpu = context, gpu
        self._left = context.config.profile.warmup_iterations
        self._traced = bool(context.config.trace_kernels)
        if gpu is not None and self._traced:
            self._left = max(self._left, SETTLING)

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Go on when enough iterations have passed and their duration is known."""
        del index, passed
        self._left -= 1
        iteration_s = None if job is None else job.iteration_s
        if iteration_s is None:
            return self
        if self._gpu is None:
            return self if self._left > 0 else Opened(iteration_s)
        ahead = 0 if self._traced else calibration_iterations(self._context, iteration_s)
        return self if self._left > ahead else Calibrating(self._context, self._gpu, iteration_s)


# How long this job's GPUs take to change a clock, found out by its first iterations, under their own load.
#
# An idle GPU clocks down by itself, and shows nothing: that is what a GPU before the first iteration is.

_ALONE_S = 0.4
_CHANGES = 8
_BEAT_S = 0.05
_AGAIN_S = 0.02
_ROUNDS = 3
_SILENT = DeviceUnavailableError("the driver did not answer in time")


def calibration_iterations(context: JobContext, iteration_s: float) -> int:
    """Return how many iterations the whole calibration takes if changes are as declared."""
    several = context.channel.size > 1
    alone, together = (_stage_iterations(context, iteration_s, together=one) for one in (False, True))
    return alone + together * several


def _stage_iterations(context: JobContext, iteration_s: float, *, together: bool) -> int:
    change_s = (context.capabilities.switch_latency_s or 0.0) + _BEAT_S * together
    return max(1, math.ceil(max(_ALONE_S, _CHANGES * change_s) / iteration_s))


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
                self.answer = yield from calibration_steps(self._gpu, in_step=self._in_step)
                self.done = self.answer.switch_latency_s is not None
                yield _AGAIN_S
        except DeviceError as error:
            self.answer, self.done = error, True


class Calibrating(Phase):
    """Measure rank 0's GPU alone, then all at once, while iterations run; then open with what was found.

    Calls of the GPUs of one node queue in the driver, so that a clock which all change at once comes later.
    ``together_s`` is the longest that any rank waited, and the latency that clocks are asked for ahead by.
    All ranks count the same iterations and exchange where they are after each round of them. A GPU that has
    shown nothing after a few keeps its declared latency, and so does one whose driver hangs.

    Cost: about a second's iterations, which count for nothing; one exchange for each round.
    """

    def __init__(self, context: JobContext, gpu: Gpu, iteration_s: float) -> None:
        self._context, self._gpu = context, gpu
        self._iteration_s = iteration_s
        self._alone: Answer | None = None
        self._begin_stage()

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """See at the end of each round how far all are."""
        del index, passed
        iteration_s = None if job is None else job.iteration_s
        self._iteration_s = min(self._iteration_s, iteration_s or math.inf)
        self._left -= 1
        if self._left > 0:
            return self
        answers = self._answers()
        if self._rounds_left and not all(done for _, done in answers):
            self._begin_round()
            return self
        if self._alone is None:
            self._alone = answers[0][0]
            if self._context.channel.size > 1:
                self._begin_stage()
                return self
        context = self._context
        found, calibration = joined(
            context.capabilities, self._alone, [answer for answer, _ in answers], context.log
        )
        context.reckoning.able, context.reckoning.calibration = found, calibration
        return Opened(self._iteration_s, found)

    def _answers(self) -> list[tuple[Answer, bool]]:
        """Return what those who measure have found by now, and whether that is all; collective."""
        mine = self._measurement and (self._measurement.answer, self._measurement.done)
        if self._alone is None:
            return [cast("tuple[Answer, bool]", self._context.channel.broadcast(mine))]
        return cast("list[tuple[Answer, bool]]", self._context.channel.gather(mine))

    def _begin_stage(self) -> None:
        together = self._alone is not None
        measures = together or self._context.channel.rank == 0
        self._measurement = Measurement(self._gpu, in_step=together) if measures else None
        task = None if self._measurement is None else DeviceTask(self._measurement.steps())
        self.settings = IterationSettings(task=task)
        self._rounds_left = _ROUNDS
        self._begin_round()

    def _begin_round(self) -> None:
        self._rounds_left -= 1
        together = self._alone is not None
        self._left = _stage_iterations(self._context, self._iteration_s, together=together)


class Clocks(Protocol):
    """The clocks that are measured one after the other."""

    @property
    def clock_mhz(self) -> int:
        """This rank's clock to measure now."""

    @property
    def slower(self) -> float:
        """Most times as long as usual that an iteration lasts now."""

    @property
    def finished(self) -> bool:
        """True once all were measured."""


class Profiling(Phase, ABC):
    """Measure a few iterations at one clock after another, with iterations at default clocks between them.

    A window lasts as many iterations as ``length`` asks for at its clock. Before the first clock
    ``settling`` iterations run at default clocks, in which the GPU warms up. Before each there are as many as
    ``pace`` asks for, and one at least, in which the last window becomes known. An iteration after something
    else ran on the engine (an evaluation) is not measured: clocks change within it. A window that `measured`
    finds too short to show anything is measured again, twice as long.
    """

    sets_clocks = True

    def __init__(
        self, clocks: Clocks, length: WindowLength, *, settling: int = 1, pace: SweepPace | None = None
    ) -> None:
        self._clocks = clocks
        self._length = length
        self._longer = 1
        self._pace = pace or SweepPace(math.inf)
        self._window: list[Iteration] = []
        self._resting = max(1, settling)
        self._runs = range(0)
        self._passed = -1
        self._pace.record_expected(self._resting)
        self._iterations = 0
        self._prepare()

    @abstractmethod
    def measured(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Take in a window; return False where it was too short to show anything."""

    @abstractmethod
    def finished(self) -> Phase:
        """Return what follows the last window."""

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        """Go on to the next clock when the window is full, and out when the sweep is finished."""
        for one in passed:
            self._passed = one.index
            if one.index in self._runs:
                self._pace.broken += one.resumed
                if not one.resumed:
                    self._window.append(one)
        if job is not None and job.iteration_s is not None:
            # its time is that of the iteration before
            self._pace.record_measured(job.iteration_s, resting=index - 1 not in self._runs)
        if self._resting:
            self._resting -= 1
            if not self._resting:
                self._run(index + 1, self._iterations)
        elif index == self._runs.stop - 1:
            self.settings = DEFAULT_UNCOUNTED
        elif index >= self._runs.stop:
            self._pace.record_expected(1)
            if self._passed >= self._runs.stop - 1:
                return self._judged(index)
        return self

    def _judged(self, index: int) -> Phase:
        """Take the window, all of which has passed; iteration ``index`` has just ended."""
        missing = self._iterations - len(self._window)
        if missing > 0:
            self._run(index + 1, missing + 1)
            return self
        window, self._window = self._window[: self._iterations], []
        if not self.measured(self._clocks.clock_mhz, window):
            self._longer *= 2
        elif self._clocks.finished:
            return self.finished()
        self._prepare()
        if not self._resting:
            self._run(index + 1, self._iterations)
        return self

    def _prepare(self) -> None:
        """Decide how long the next window is, and run default clocks before it."""
        slower = self._clocks.slower
        self._iterations = self._longer * self._length.at(self._pace.slowdown_factor(slower))
        resting = self._pace.baseline_iterations_needed(self._iterations, slower)
        self._pace.record_expected(resting)
        self._resting += resting
        self.settings = DEFAULT_UNCOUNTED

    def _run(self, first: int, iterations: int) -> None:
        """Run the clock from the next iteration on."""
        self._pace.record_expected(iterations, self._clocks.slower)
        self._runs = range(first, first + iterations)
        clock_mhz = self._clocks.clock_mhz if self.sets_clocks else None
        self.settings = IterationSettings(fixed_clock(clock_mhz))
