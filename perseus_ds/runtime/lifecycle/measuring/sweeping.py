"""The sweep over clocks: from windows of iterations to the profile of a job, or to what it observes.

One class in one file: its phases hand each other the windows so far, the pace and the estimate. How a window
is pooled, a clock is chosen and a sweep is kept stands in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from perseus_ds.device.gpu import is_held
from perseus_ds.errors import IncompleteProfileError, UnmeasurableError
from perseus_ds.plan import write_request
from perseus_ds.profile import Sweep, write_profile
from perseus_ds.profile.estimating.estimate import Estimate
from perseus_ds.profile.estimating.thermal import UNKNOWN_WARMING, Warming, Warmth, warming_of
from perseus_ds.profile.sweep_cost import SweepPace, in_words
from perseus_ds.runtime.conflicts import ConflictMonitor
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.measuring.choosing import ClockChoice, window_length
from perseus_ds.runtime.lifecycle.measuring.held import held_alone, held_clocks, same_clock
from perseus_ds.runtime.lifecycle.measuring.profiling import (
    CHANGE_S,
    pooled,
    profile_of,
    window_estimate,
)
from perseus_ds.runtime.lifecycle.measuring.sweep_lines import (
    log_begin,
    log_measured,
    log_not_held,
    log_observed,
    log_varying,
)
from perseus_ds.runtime.lifecycle.measuring.window_loads import WindowLoads
from perseus_ds.runtime.lifecycle.phases import DEFAULT_CLOCK, Phase, Profiling, Unplanned
from perseus_ds.runtime.lifecycle.planning.plan_requests import plan_request
from perseus_ds.runtime.pooling import MeasuredSweep, Pooled
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Load

_SHORT_WINDOWS = 4
_VARIES = 0.1
"""Computations of one kind, clock and size agree within a hundredth on a GPU left alone."""


class Sweeping:
    """Begin the phase that measures, and write down what it finds.

    The profile is of computations: it serves batches of every number of microbatches, which may change while
    it is made. Where microbatches change their shape, and the framework knows it, durations are brought to
    one size for every clock. The profile is of the mean of all that was seen. Where computations vary for no
    known reason, clocks are measured there and back, so that none sees other batches than the others.
    """

    def __init__(
        self,
        context: JobContext,
        watch: EnergyWatch,
        monitor: ConflictMonitor,
    ) -> None:
        self._context = context
        self._watch = watch
        self._monitor = monitor
        self._short_windows = self._void = self._held_mhz = self._steady_mhz = 0
        self._loads = WindowLoads(self._context)
        self._warmth = Warmth()

    def profiling(self, iteration_s: float, *, ran: int, then: Callable[[], Phase]) -> Phase:
        """Measure every clock, write the profile, go on; ``ran`` iterations have passed."""
        choice = ClockChoice(self._context, iteration_s)
        settling = self._settling(iteration_s, choice.window.at() * choice.count, ran=ran)
        sweeps, pace = choice.begun(), choice.pace()
        log_begin(self._context, choice, choice.cost(settling))

        def written(found: MeasuredSweep, last: MeasuredSweep | None) -> Phase:
            warming = UNKNOWN_WARMING
            if last is not None:
                warming = self._warming(sweeps.windows[0], last.windows[-1])
            course = self._course(pace, iteration_s, ran=ran)
            return then() if self._write(found, warming, choice.grid_mhz, course) else Unplanned()

        def profiled() -> Phase:
            if sweeps.spread > _VARIES:
                log_varying(self._context.log, sweeps)
                back = sweeps.back()
                return self._walking(back, choice, pace, then=lambda: written(sweeps.joined(back), back))
            if sweeps.sweep.done == 1:
                return written(sweeps, None)
            cool = sweeps.first_again()
            return self._walking(cool, choice, pace, then=lambda: written(sweeps, cool))

        return self._walking(sweeps, choice, pace, then=profiled, settling=settling, chooses=True)

    def _walking(
        self,
        sweeps: MeasuredSweep,
        choice: ClockChoice,
        pace: SweepPace,
        *,
        then: Callable[[], Phase],
        settling: int = 1,
        chooses: bool = False,
    ) -> Phase:
        """Measure clock after clock; where it ``chooses``, every window chooses the next one."""

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> bool:
            seen = self._pooled(clock_mhz, window)
            if seen is None:
                return False
            sweeps.record(seen[0])
            choice.leave_out_refused(sweeps)
            if chooses:
                choice.go_on(sweeps)
            if seen[0] is not None:
                left_s = choice.left_s(sweeps, pace)
                log_measured(self._context.log, clock_mhz, sweeps, choice, left_s, again=not chooses)
            return True

        return Profiling(sweeps, choice.window, measured=measured, then=then, settling=settling, pace=pace)

    def _course(self, pace: SweepPace, iteration_s: float, *, ran: int) -> dict[str, float]:
        """How long the sweep lasted, by how much training was slower, and what counted for nothing."""
        return {
            "took_s": pace.took_s,
            "slower_pct": pace.slower_pct(iteration_s),
            "first_iterations": ran,
            "after_something_else": pace.broken,
            "void_or_skipped": self._void,
        }

    def observing(self, iteration_s: float, *, ran: int) -> Phase:
        """Measure one window at default clocks and report what it shows; ``ran`` iterations have passed."""
        context = self._context
        if not self._watch.watching:
            return Unplanned()
        length = window_length(context, iteration_s)
        top = context.capabilities.clocks_mhz[:1]
        sweeps = MeasuredSweep(Sweep(top))

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> bool:
            seen = self._pooled(clock_mhz, window)
            if seen is None:
                return False
            sweeps.record(seen[0])
            if seen[0] is not None:
                log_observed(self._context.log, seen[0])
            return True

        return Profiling(
            sweeps,
            length,
            measured=measured,
            then=Unplanned,
            policy_at=lambda _: DEFAULT_CLOCK,
            settling=self._settling(iteration_s, length.at(), ran=ran),
        )

    def _settling(self, iteration_s: float, sweep_iterations: int, *, ran: int) -> int:
        """How many iterations more the GPUs need to warm up; they have worked since the first."""
        needed = math.ceil(self._context.config.profile.settle_s / iteration_s) - ran
        return max(1, min(needed, sweep_iterations // 2))

    def _pooled(self, clock_mhz: int, window: Sequence[Iteration]) -> tuple[Pooled | None] | None:
        """Pool a window; None where it was too short to show anything, a few times at most.

        The only element is None where some GPU refuses the clock.

        The highest clock is never left out: where it is refused, what the GPU chooses itself stands for it.

        Raises:
            IncompleteProfileError: longer windows showed nothing either, or would not.
        """
        self._void += sum(one.void or one.skipped for one in window)
        refused = clock_mhz in self._monitor.refused_mhz - {max(self._context.capabilities.clocks_mhz)}
        try:
            told, loads = self._loads.shared(window)
            seen = pooled(
                self._context,
                clock_mhz,
                lambda: self._estimate(clock_mhz, told, loads),
                refused=refused,
                troubles=tuple(self._watch.troubles),
            )
        except IncompleteProfileError as error:
            self._short_windows += 1
            if self._short_windows > _SHORT_WINDOWS or isinstance(error, UnmeasurableError):
                raise
            self._context.log.event(
                "window_too_short", f"{error.message}: once more, twice as long", clock_mhz=clock_mhz
            )
            return None
        self._short_windows = 0
        return (seen,)

    def _estimate(self, clock_mhz: int, window: Sequence[Iteration], loads: Mapping[int, Load]) -> Estimate:
        looks = self._watch.looks_between(window[0].start_s + CHANGE_S, window[-1].end_s)
        self._held_mhz = held_alone(clock_mhz, [look for _, look in looks], held_mhz=self._held_mhz)
        found = window_estimate(
            self._watch,
            self._monitor.control,
            clock_mhz,
            window,
            loads=loads,
            warmth=self._warmth,
        )
        reached_mhz = [point.achieved_mhz for point in found.points.values()]
        if all(mhz is not None and is_held(clock_mhz, mhz) for mhz in reached_mhz):
            self._steady_mhz = max(self._steady_mhz, clock_mhz)
        return found

    def _warming(self, warm: Pooled, cool: Pooled) -> Warming:
        """What temperatures show: alike on all ranks, from what all know."""
        again = cool.points if same_clock(warm, cool) else {}
        found = warming_of(warm.points, again, thermal=cool.thermal, settled_c=cool.settled_c)
        if found is not None:
            return found
        reason = self._watch.temperatures.reason or "what was read and what the GPUs took do not fit together"
        if not again:
            reason = "the highest clock was another one at the end of the sweep than at its begin"
        self._context.log.event(
            "no_temperature",
            f"temperatures are not used: {reason}. GPUs are cooler at low clocks: energies there may be 1 % "
            "too small",
        )
        return UNKNOWN_WARMING

    def _write(
        self,
        measured: MeasuredSweep,
        warming: Warming,
        grid_mhz: Sequence[int],
        course: Mapping[str, float],
    ) -> bool:
        """Write the profile; return whether plans follow."""
        context, sweep, windows = self._context, measured.sweep, measured.windows
        held = held_clocks(sweep.clocks_mhz, windows)
        lost = [clock for clock in sweep.clocks_mhz[: len(windows)] if clock not in held]
        if lost:
            log_not_held(context.log, lost)
        self._monitor.expect_held(self._steady_mhz, context.capabilities)
        profile = profile_of(context, sweep, windows, warming=warming, grid_mhz=grid_mhz)
        self._loads.log_fits(profile.loads)
        if context.job.rank == 0:
            write_profile(profile, context.directory.profile)
            write_request(context.directory.request, plan_request(context, context.job))
        self._loads.log_mean()
        where = (
            f"wrote {context.directory.profile} after {in_words(course['took_s'])}{context.whose_time}, "
            f"in which training was {max(0.0, course['slower_pct']):.1f} % slower"
        )
        if context.config.mode == "profile":
            context.log.event("profiled", f"{where}; mode is profile: default clocks from here on", **course)
            return False
        context.log.event("profiled", where, **course)
        return True
