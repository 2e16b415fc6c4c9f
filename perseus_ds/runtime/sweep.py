"""The sweep over clocks: from windows of iterations to the profile of a job, or to what it observes.

What windows are made of is in `window.py`; ranks' estimates are pooled in `pooling.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import fmean

from perseus_ds.device.gpu import is_held
from perseus_ds.errors import (
    IncompleteProfileError,
    PerseusError,
    ProfileError,
    UnmeasurableError,
    as_perseus_error,
)
from perseus_ds.plan.file import write_request
from perseus_ds.profile import Window, write_profile
from perseus_ds.profile.estimate import Estimate, estimate
from perseus_ds.profile.sweep import (
    PLACES,
    SweepCost,
    SweepPace,
    WindowLength,
    clocks_held,
    cost_of,
    in_words,
    next_clock,
    reserved_iterations,
)
from perseus_ds.profile.temperature import (
    NO_CORRECTION,
    TemperatureCorrection,
    ThermalHistory,
    temperature_correction,
)
from perseus_ds.runtime.channel import ranks_in_words
from perseus_ds.runtime.clocks import fixed_clock
from perseus_ds.runtime.context import JobContext, plan_request
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.event_log import log_troubles
from perseus_ds.runtime.phases import DEFAULT_UNCOUNTED, BaselineOnly, IterationSettings, Phase, Profiled
from perseus_ds.runtime.pooling import Measured, MeasuredSweep, Pooled, pool
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.status import ConflictMonitor, JobStatus
from perseus_ds.runtime.window import (
    CHANGE_S,
    WholeIterations,
    WindowLoads,
    held_clocks,
    mean_power_w,
    profile_of,
    refuse_foreign_clock,
    same_clock,
    without_changes,
)
from perseus_ds.schedule import Load

# Which clocks a job's sweep measures, and what that costs: chosen on rank 0, alike for all ranks.

_OFTEN = 8
"""An iteration that runs each computation so often suffices: of four each, transfers came out too long."""
_LONG = 6
_MOST_REFUSED = 8


class ClockChoice:
    """Chooses the clocks of a sweep within the user's limits; ``grid_mhz`` are those of this rank's GPU."""

    def __init__(self, context: JobContext, iteration_s: float) -> None:
        self._context = context
        self._settings = context.config.profile
        self.window = window_length(context, iteration_s)
        self.grid_mhz = tuple(sorted(context.capabilities.clocks_mhz, reverse=True))
        self.count = min(self._settings.max_clocks or len(PLACES), len(PLACES))

    def pace(self) -> SweepPace:
        """Return how many iterations at default clocks the sweep is diluted by."""
        return SweepPace(self._settings.max_slower_pct, reserved_iterations(self.window.at()))

    def cost(self, settling: int) -> SweepCost:
        """Time and slowdown of the whole sweep."""
        return cost_of(
            [self.grid_mhz[0] / clock for clock in clocks_held(self.grid_mhz, self.count)],
            window=self.window,
            most_slower_pct=self._settings.max_slower_pct,
            settling=settling,
        )

    def left_s(self, measured: MeasuredSweep, pace: SweepPace) -> float:
        """Return how much longer the sweep will last; 0 once it is through."""
        if measured.finished:
            return 0.0
        ahead = SweepPace(pace.most_slower_pct, pace.reserved, pace.ran, pace.slowdown_lower_bound)
        later = clocks_held(self.grid_mhz, self.count)[len(measured.windows) + 1 :]
        ahead.expect_windows(
            (self.window.at(pace.slowdown_factor(slower)), slower)
            for slower in [measured.slower, *map(measured.slower_at, later)]
        )
        return (ahead.ran + ahead.lost - pace.ran - pace.slowdown_lower_bound) * self.window.iteration_s

    def leave_out_refused(self, measured: MeasuredSweep) -> None:
        """Choose no clock any more that a driver has refused.

        Raises:
            IncompleteProfileError: a driver takes hardly any clock of its own list.
        """
        refused_mhz = measured.refused_mhz
        clocks = ", ".join(map(str, sorted(refused_mhz)))
        if len(refused_mhz) > _MOST_REFUSED:
            raise IncompleteProfileError(
                f"the driver lists {clocks} MHz and refuses every one of them",
                hint="see which it takes: nvidia-smi -lgc CLOCK",
            )
        self.grid_mhz = tuple(mhz for mhz in self.grid_mhz if mhz not in refused_mhz)


def window_length(context: JobContext, iteration_s: float) -> WindowLength:
    """Return how long a window is, in whose first iteration the clock changes.

    That costs the computations of its first second. Each one is measured twice all the same: also a forward
    that runs alone only while the pipeline fills.
    """
    orders = context.job.schedule.orders
    counts = Counter((i.stage, i.kind) for o in orders for i in o if i.kind.is_computation)
    fewest = min(counts.values(), default=1)
    alone = fewest >= _OFTEN and iteration_s >= _LONG * CHANGE_S and not context.job.replayed
    least = 1 if alone else 2 if fewest > 1 else 3
    return WindowLength(iteration_s, context.config.profile.min_window_s + CHANGE_S, least)


_MOST_MISFIT = 0.02  # 0.0007 and 0.002 were seen
_SHORT_WINDOWS = 4
_VARIES = 0.1
"""Computations of one kind, clock and size agree within a hundredth on a GPU left alone."""


class Windows:
    """Measures the windows of a sweep on all ranks alike, and writes the profile that they give.

    The profile is of computations: it serves batches of every number of microbatches, which may change while
    it is made. Where microbatches change their shape, and the framework knows it, durations are brought to
    one size for every clock. The profile is of the mean of all that was seen. ``whole`` shows when
    instructions ran where only whole iterations are seen.
    """

    def __init__(self, context: JobContext, watch: EnergyWatch, monitor: ConflictMonitor) -> None:
        self.context = context
        self.watch = watch
        self.whole = WholeIterations(context) if context.job.replayed else None
        self._monitor = monitor
        self._short_windows = self._void = self._held_mhz = 0
        self._loads = WindowLoads(context)
        self._warmth = ThermalHistory()

    def settling_iterations(self, iteration_s: float, sweep_iterations: int, *, ran: int) -> int:
        """Return how many iterations more the GPUs need to warm up; they have worked since the first."""
        needed = math.ceil(self.context.config.profile.settle_s / iteration_s) - ran
        return max(1, min(needed, sweep_iterations // 2))

    def undisturbed(self, window: Sequence[Iteration]) -> list[Iteration]:
        """Return what all ranks have of a window; one alone may have evaluated within it; collective."""
        everyone = self.context.channel.gather({one.index for one in window})
        return [one for one in window if all(one.index in indices for indices in everyone)]

    def record(self, sweep: MeasuredSweep, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Pool a window and enter it into a sweep; False where it was too short, a few times at most.

        Where some GPU refuses the clock, the sweep leaves it out. The highest clock is never left out: where
        it is refused, what the GPU chooses itself stands for it.

        Raises:
            IncompleteProfileError: longer windows showed nothing either, or would not.
        """
        self._void += sum(one.void or one.skipped for one in window)
        refused = clock_mhz in self._monitor.refused_mhz - {max(self.context.capabilities.clocks_mhz)}
        try:
            window = window if self.whole is None else self.whole.fill(window)
            told, loads = self._loads.share(window)
            seen = self._pool(clock_mhz, None if refused else lambda: self._estimate(clock_mhz, told, loads))
        except IncompleteProfileError as error:
            self._short_windows += 1
            if self._short_windows > _SHORT_WINDOWS or isinstance(error, UnmeasurableError):
                raise
            self.context.log.event(
                "window_too_short", f"{error.message}: once more, twice as long", clock_mhz=clock_mhz
            )
            return False
        self._short_windows = 0
        sweep.record(seen)
        return True

    def _pool(self, clock_mhz: int, estimated: Callable[[], Estimate] | None) -> Pooled | None:
        """Gather what every rank estimates of its window and pool it; an error of one is an error of all.

        ``estimated`` is None where this rank's driver does not take the clock. The result is None if any
        rank's does not.

        Raises:
            UnmeasurableError: some rank cannot measure at all.
            IncompleteProfileError: some rank could not report anything from its window.
            EngineError: a rank fell silent.
        """
        context = self.context
        mine: Measured | PerseusError | None = None
        if estimated is not None:
            try:
                mine = Measured(context.job.replica, estimated(), tuple(self.watch.troubles))
            except Exception as error:  # noqa: BLE001  # whatever it is, the others hear of it
                mine = as_perseus_error(error)
        everyone = context.channel.gather(mine)
        for rank, one in enumerate(everyone):
            if isinstance(one, PerseusError):
                again = UnmeasurableError if isinstance(one, UnmeasurableError) else IncompleteProfileError
                raise again(f"profiling at {clock_mhz} MHz on rank {rank}: {one.message}", hint=one.hint)
        measured = {rank: one for rank, one in enumerate(everyone) if isinstance(one, Measured)}
        log_troubles(context.log, {rank: one.troubles for rank, one in measured.items()})
        refusing = [rank for rank, one in enumerate(everyone) if one is None]
        if not refusing:
            return pool(measured.values())
        context.log.event(
            "clock_refused",
            f"the driver of {ranks_in_words(refusing)} refuses {clock_mhz} MHz: no plan uses it, "
            "profiling goes on without it",
            clock_mhz=clock_mhz,
            ranks=refusing,
        )
        return None

    def _estimate(
        self, clock_mhz: int, iterations: Sequence[Iteration], loads: Mapping[int, Load]
    ) -> Estimate:
        """Estimate a window on this rank, its durations brought to the ``loads`` of its stages (`Window`).

        Raises:
            UnmeasurableError: the energy of this rank's GPU cannot be read, or somebody else sets its clock.
            IncompleteProfileError: the window shows nothing.
        """
        watch, warmth = self.watch, self._warmth
        looks = watch.looks_between(iterations[0].start_s + CHANGE_S, iterations[-1].end_s)
        refuse_foreign_clock(clock_mhz, [look for _, look in looks], held_mhz=self._held_mhz)
        if watch.useless:
            raise UnmeasurableError(watch.useless, hint="see perseus-ds doctor on its host")
        iterations = [one for one in iterations if not (one.void or one.skipped)]
        if not iterations:
            raise IncompleteProfileError("no iteration of the window could be measured")
        if self._monitor.uncontrolled_s >= iterations[0].start_s:
            raise IncompleteProfileError("its guard was gone, or did not answer, for a while")
        intervals, changes = without_changes(iterations)
        start_s, end_s = changes[0][1], iterations[-1].end_s
        spans = sorted((one.start_s, one.end_s) for one in iterations)
        achieved_mhz, reasons = watch.clock_between(start_s, end_s)
        window = Window(
            clock_mhz=clock_mhz,
            start_s=start_s,
            end_s=end_s,
            intervals=intervals,
            counter=watch.trace(start_s),
            achieved_mhz=achieved_mhz,
            event_reasons=reasons,
            outside=(*((one[1], other[0]) for one, other in pairwise(spans)), *changes),
            loads=loads,
            temperature_c=watch.temperatures.mean_c(start_s, end_s),
        )
        # what was read since the last window; None once the sensor is not believed
        trace = watch.trace(-math.inf if warmth.until_s == math.inf else warmth.until_s)
        warmth.over(trace, list(watch.temperatures.readings))
        thermal = None if watch.temperatures.reason else warmth.thermal()
        power_w = mean_power_w(window.counter, start_s, end_s)
        watch.forget(min(end_s, warmth.until_s))
        found = estimate(window)
        if all(p.achieved_mhz and is_held(clock_mhz, p.achieved_mhz) for p in found.points.values()):
            self._held_mhz = max(self._held_mhz, clock_mhz)
        steady_c = None if thermal is None or power_w is None else thermal.steady_state_c(power_w)
        return replace(found, thermal=thermal, steady_state_c=steady_c)

    def correct_temperatures(self, warm: Pooled, cool: Pooled) -> TemperatureCorrection:
        """Return what temperatures show: alike on all ranks, from what all know."""
        again = cool.points if same_clock(warm, cool) else {}
        found = temperature_correction(
            warm.points, again, thermal=cool.thermal, steady_state_c=cool.steady_state_c
        )
        if found is not None:
            return found
        reason = self.watch.temperatures.reason or "what was read and what the GPUs took do not fit together"
        if not again:
            reason = "the highest clock was another one at the end of the sweep than at its begin"
        self.context.log.event(
            "no_temperature",
            f"temperatures are not used: {reason}. GPUs are cooler at low clocks: energies there may be 1 % "
            "too small",
        )
        return NO_CORRECTION

    def write(
        self,
        measured: MeasuredSweep,
        warming: TemperatureCorrection,
        grid_mhz: Sequence[int],
        course: Mapping[str, float],
    ) -> Phase:
        """Write the profile; return the phase that follows."""
        context, windows = self.context, measured.windows
        held = held_clocks(measured.clocks_mhz, windows)
        lost = [clock for clock in measured.clocks_mhz[: len(windows)] if clock not in held]
        if lost:
            context.log.event(
                "not_held",
                f"{', '.join(map(str, lost))} MHz do not hold under this job's load: no plan uses them",
                clocks_mhz=lost,
            )
        self._monitor.expect_held(self._held_mhz, context.capabilities)
        profile = profile_of(context, measured, warming=warming, grid_mhz=grid_mhz)
        self._loads.log_fits(profile.loads)
        if context.job.rank == 0:
            try:
                write_profile(profile, context.directory.profile)
                write_request(context.directory.request, plan_request(context, context.job))
            except OSError as error:
                raise ProfileError(
                    f"{context.directory.path}: its profile cannot be written: {error.strerror}",
                    hint="free the disk, or name another run_dir",
                ) from error
        self._loads.log_mean()
        where = (
            f"wrote {context.directory.profile} after {in_words(course['took_s'])}{context.whose_time}, "
            f"in which training was {max(0.0, course['slower_pct']):.1f} % slower"
        )
        course = {**course, "void_or_skipped": self._void}
        if context.config.mode == "profile":
            context.log.event("profiled", f"{where}; mode is profile: default clocks from here on", **course)
            return BaselineOnly()
        context.log.event("profiled", where, **course)
        return Profiled()


class RankTrials:
    """Trials with all ranks at the highest clock, all at a low one, and then each in turn at the low one.

    ``lasts_s`` are the mean iterations of the trials so far.
    """

    def __init__(self, high_mhz: int, low_mhz: int, *, rank: int, ranks: int) -> None:
        self.high_mhz, self.low_mhz = high_mhz, low_mhz
        self.lasts_s: list[float] = []
        self.count = 2 + ranks
        self._rank = rank

    @property
    def clock_mhz(self) -> int:
        """This rank's clock in the present trial."""
        return self.low_mhz if len(self.lasts_s) in {1, 2 + self._rank} else self.high_mhz

    @property
    def finished(self) -> bool:
        """True after the last trial."""
        return len(self.lasts_s) == self.count

    @property
    def slower(self) -> float:
        """Most times as long as usual that an iteration lasts in the present trial."""
        return self.high_mhz / self.low_mhz if self.lasts_s else 1.0


class Profiling(Phase, ABC):
    """Measure a few iterations at one clock after another, with iterations at default clocks between them.

    A window lasts as many iterations as ``length`` asks for at its clock. Before the first clock
    ``settling`` iterations run at default clocks, in which the GPU warms up. Before each there are as many as
    ``pace`` asks for, and one at least, in which the last window becomes known. An iteration after something
    else ran on the engine (an evaluation) is not measured: clocks change within it. A window that
    `take_window` finds too short to show anything is measured again, twice as long.
    """

    sets_clocks = True

    def __init__(
        self,
        windows: Windows,
        clocks: MeasuredSweep | RankTrials,
        length: WindowLength,
        *,
        settling: int = 1,
        pace: SweepPace | None = None,
    ) -> None:
        self._windows, self._clocks = windows, clocks
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
    def take_window(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Take in a window; return False where it was too short to show anything."""

    @abstractmethod
    def next_phase(self) -> Phase:
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
                return self._judge(index)
        return self

    def _judge(self, index: int) -> Phase:
        """Take the window, all of which has passed; iteration ``index`` has just ended."""
        self._window = self._windows.undisturbed(self._window)
        missing = self._iterations - len(self._window)
        if missing > 0:
            self._run(index + 1, missing + 1)
            return self
        window, self._window = self._window[: self._iterations], []
        if not self.take_window(self._clocks.clock_mhz, window):
            self._longer *= 2
        elif self._clocks.finished:
            return self.next_phase()
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


class Weighing(Profiling):
    """Find how long each rank computes within an iteration that is seen as a whole, then measure every clock.

    The low clock is the lowest of a profile: a rank that is not the slowest there is so in no plan. Trials
    that the schedule does not explain are made again, longer: a clock may have come late.
    """

    def __init__(
        self, windows: Windows, whole: WholeIterations, iteration_s: float, *, ran: int, again: bool = False
    ) -> None:
        job, choice = windows.context.job, ClockChoice(windows.context, iteration_s)
        low_mhz = clocks_held(choice.grid_mhz, choice.count)[-1]
        ranks = job.schedule.ranks
        self._whole, self._iteration_s, self._ran = whole, iteration_s, ran
        self._again = again
        self._trials = RankTrials(choice.grid_mhz[0], low_mhz, rank=job.pipeline_rank, ranks=ranks)
        length = WindowLength(iteration_s, (8.0 if again else 2.0) * CHANGE_S, 4 if again else 2)
        settling = windows.settling_iterations(iteration_s, length.at() * self._trials.count, ran=ran)
        slower = [1.0, *[self._trials.high_mhz / low_mhz] * (1 + ranks)]
        context = windows.context
        cost = cost_of(slower, window=length, most_slower_pct=context.config.profile.max_slower_pct)
        context.log.event(
            "weighing",
            "no hook runs inside an iteration: each rank keeps one clock for it. Ranks are slowed in turn "
            f"first, to find how long each computes: about {in_words(cost.duration_s)}{context.whose_time}, "
            f"training up to {cost.slower_pct:.0f} % slower meanwhile",
            clock_mhz=low_mhz,
            lasts_s=cost.duration_s,
            slower_pct=cost.slower_pct,
        )
        super().__init__(windows, self._trials, length, settling=settling, pace=choice.pace())

    def take_window(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Take in a trial, without the iterations in whose first second the clock changed."""
        del clock_mhz
        lasts_s = self._whole.lasts_s(window)
        since_s = [0.0, *accumulate(lasts_s)]
        settled = [
            one_s for one_s, begun_s in zip(lasts_s, since_s, strict=False) if one_s and begun_s >= CHANGE_S
        ]
        if not settled:
            return False
        self._trials.lasts_s.append(fmean(settled))
        return True

    def next_phase(self) -> Phase:
        """Take the ranks' times from the trials, and measure every clock."""
        high_s, low_s, *slowed_s = self._trials.lasts_s
        misfit = self._whole.model.fit(high_s, slowed_s, low_s / high_s)
        ran = self._ran + self._pace.timed
        if misfit > _MOST_MISFIT and not self._again:
            return Weighing(self._windows, self._whole, self._iteration_s, ran=ran, again=True)
        if misfit > _MOST_MISFIT:
            raise IncompleteProfileError(
                f"iterations last {100.0 * misfit:.1f} % longer or shorter than their schedule explains",
                hint="train without the graph of whole iterations, or without us",
            )
        busy = list(self._whole.model.busy())
        self._windows.context.log.event(
            "weighed",
            f"ranks compute for {', '.join(f'{100.0 * share:.0f}' for share in busy)} % of an iteration; the "
            f"schedule explains iterations within {100.0 * misfit:.2f} %",
            busy=busy,
            misfit=misfit,
        )
        return Sweeping.begun(self._windows, self._iteration_s, ran=ran)


class Sweeping(Profiling):
    """Measure every clock, write the profile, go on.

    Where computations vary for no known reason, clocks are measured there and back, so that none sees other
    batches than the others. Else the highest clock is measured once more, on a GPU that has just run the
    lowest and is cooler.
    The way back has a phase of its own, which knows the way ``there``.
    """

    def __init__(
        self,
        windows: Windows,
        choice: ClockChoice,
        sweeps: MeasuredSweep,
        pace: SweepPace,
        *,
        ran: int,
        settling: int = 1,
        there: MeasuredSweep | None = None,
    ) -> None:
        super().__init__(windows, sweeps, choice.window, settling=settling, pace=pace)
        self._choice, self._ran, self._there = choice, ran, there
        self._sweep = sweeps

    @classmethod
    def begun(cls, windows: Windows, iteration_s: float, *, ran: int) -> Sweeping:
        """Begin at the highest clock; ``ran`` iterations have passed."""
        context, choice = windows.context, ClockChoice(windows.context, iteration_s)
        settling = windows.settling_iterations(iteration_s, choice.window.at() * choice.count, ran=ran)
        cost, sweep = choice.cost(settling), MeasuredSweep(choice.grid_mhz[:1])
        context.log.event(
            "profiling",
            f"profiling {choice.count} clocks: about {in_words(cost.duration_s)}{context.whose_time}, "
            f"training up to {cost.slower_pct:.0f} % slower meanwhile",
            clock_mhz=sweep.clock_mhz,
            done=0,
            total=choice.count,
            iterations=choice.window.at(),
            lasts_s=cost.duration_s,
            slower_pct=cost.slower_pct,
        )
        return cls(windows, choice, sweep, choice.pace(), ran=ran, settling=settling)

    def take_window(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Take in a window; on the way there every window chooses the next clock."""
        sweeps, choice = self._sweep, self._choice
        if not self._windows.record(sweeps, clock_mhz, window):
            return False
        choice.leave_out_refused(sweeps)
        done, place = len(sweeps.windows), "once more"
        if self._there is None:
            following_mhz = self._windows.context.channel.broadcast_result(
                lambda: next_clock(sweeps.points, sweeps.clocks_mhz, choice.grid_mhz, choice.count)
            )
            sweeps.clocks_mhz += () if following_mhz is None else (following_mhz,)
            place = f"({done} of {choice.count})"
        if clock_mhz in sweeps.refused_mhz:
            return True
        left_s = choice.left_s(sweeps, self._pace)
        if self._there is None and left_s:
            place += f"; about {in_words(left_s)} left"
        self._windows.context.log.event(
            "profiling",
            f"profiled {clock_mhz} MHz {place}",
            clock_mhz=clock_mhz,
            done=done,
            total=choice.count,
            left_s=left_s,
        )
        return True

    def next_phase(self) -> Phase:
        """Measure the way back, then write the profile."""
        sweeps = self._sweep
        if self._there is not None:
            warming = self._windows.correct_temperatures(self._there.windows[0], sweeps.windows[-1])
            varying = self._there.spread > _VARIES
            return self._written(self._there.join(sweeps) if varying else self._there, warming)
        if sweeps.spread > _VARIES:
            self._windows.context.log.event(
                "varying",
                f"computations vary by {100.0 * sweeps.spread:.0f} % at one clock: batches change, or others "
                "are at work. Every clock is measured a second time, from the last to the first, and the "
                "plan is as sure as both agree",
                spread=sweeps.spread,
            )
            back = sweeps.back()
        elif len(sweeps.windows) == 1:
            return self._written(sweeps, NO_CORRECTION)
        else:
            back = MeasuredSweep(sweeps.clocks_mhz[:1])
        return Sweeping(self._windows, self._choice, back, self._pace, ran=self._ran, there=sweeps)

    def _written(self, sweeps: MeasuredSweep, warming: TemperatureCorrection) -> Phase:
        course = {
            "took_s": self._pace.took_s,
            "slower_pct": self._pace.slower_pct(self._length.iteration_s),
            "first_iterations": self._ran,
            "after_something_else": self._pace.broken,
        }
        return self._windows.write(sweeps, warming, self._choice.grid_mhz, course)


class Observing(Profiling):
    """Measure one window at default clocks and report what it shows."""

    sets_clocks = False

    def __init__(self, windows: Windows, iteration_s: float, *, ran: int) -> None:
        length = window_length(windows.context, iteration_s)
        sweeps = MeasuredSweep(windows.context.capabilities.clocks_mhz[:1])
        settling = windows.settling_iterations(iteration_s, length.at(), ran=ran)
        super().__init__(windows, sweeps, length, settling=settling)
        self._sweep = sweeps

    def take_window(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        """Report what the window shows."""
        if not self._windows.record(self._sweep, clock_mhz, window):
            return False
        seen = self._sweep.windows[-1]
        rows = [
            {"computation": f"{stage}{kind.value}", "time_s": point.time_s, "energy_j": point.energy_j}
            | {"energy_se_j": point.energy_se_j, "clock_mhz": point.achieved_mhz}
            for (stage, kind), point in seen.points.items()
        ]
        energy_j = sum(point.energy_j for point in seen.points.values())
        self._windows.context.log.event(
            "observed",
            f"observed at default clocks: {energy_j:.4g} J in one microbatch's computations, "
            f"{seen.blocking_power_w:.4g} W while waiting",
            blocking_power_w=seen.blocking_power_w,
            computations=rows,
        )
        return True

    def next_phase(self) -> Phase:
        """Go on at default clocks."""
        return BaselineOnly()


def begin_profile(windows: Windows, iteration_s: float, *, ran: int) -> Phase:
    """Return the first phase of a profile; ``ran`` iterations have passed."""
    if windows.whole is not None:
        return Weighing(windows, windows.whole, iteration_s, ran=ran)
    return Sweeping.begun(windows, iteration_s, ran=ran)
