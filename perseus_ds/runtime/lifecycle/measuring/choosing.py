"""Which clocks a job's sweep measures, and what that costs: chosen on rank 0, alike for all ranks."""

from __future__ import annotations

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import Sweep
from perseus_ds.profile.next_clock import PLACES, clocks_held, next_clock
from perseus_ds.profile.sweep_cost import SweepCost, SweepPace, WindowLength, coming_after, cost_of
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.measuring.profiling import CHANGE_S
from perseus_ds.runtime.pooling import MeasuredSweep

_MICROBATCHES = 8
"""An iteration of as many shows each computation often enough: of four, transfers came out too long."""
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

    def begun(self) -> MeasuredSweep:
        """Begin with the highest clock."""
        return MeasuredSweep(Sweep(self.grid_mhz[:1]))

    def pace(self) -> SweepPace:
        """How many iterations at default clocks the sweep is diluted by."""
        return SweepPace(self._settings.max_slower_pct, coming_after(self.window.at()))

    def cost(self, settling: int) -> SweepCost:
        """Time and slowdown of the whole sweep."""
        return cost_of(
            [self.grid_mhz[0] / clock for clock in clocks_held(self.grid_mhz, self.count)],
            window=self.window,
            most_slower_pct=self._settings.max_slower_pct,
            settling=settling,
        )

    def left_s(self, measured: MeasuredSweep, pace: SweepPace) -> float:
        """How much longer the sweep will last; 0 once it is through."""
        sweep = measured.sweep
        if sweep.finished:
            return 0.0
        ahead = SweepPace(pace.most_slower_pct, pace.coming, pace.ran, pace.surely_lost)
        later = clocks_held(self.grid_mhz, self.count)[sweep.done + 1 :]
        for slower in [measured.slower, *map(sweep.slower, later)]:
            iterations = self.window.at(pace.lasts(slower))
            ahead.pass_(ahead.rests(iterations, slower))
            ahead.pass_(iterations, slower)
            ahead.pass_(1)
        return (ahead.ran + ahead.lost - pace.ran - pace.surely_lost) * self.window.iteration_s

    def go_on(self, measured: MeasuredSweep) -> None:
        """Measure the clock that rank 0 chooses next, if there is one; collective.

        Raises:
            SilentRankError: a rank fell silent.
        """
        sweep = measured.sweep
        clock_mhz = self._context.channel.broadcast_result(
            lambda: next_clock(sweep.points, sweep.clocks_mhz, self.grid_mhz, self.count)
        )
        if clock_mhz is not None:
            sweep.go_on(clock_mhz)

    def leave_out_refused(self, measured: MeasuredSweep) -> None:
        """Choose no clock any more that a driver has refused.

        Raises:
            IncompleteProfileError: a driver takes hardly any clock of its own list.
        """
        refused_mhz = measured.sweep.refused_mhz
        clocks = ", ".join(map(str, sorted(refused_mhz)))
        if len(refused_mhz) > _MOST_REFUSED:
            raise IncompleteProfileError(
                f"the driver lists {clocks} MHz and refuses every one of them",
                hint="see which it takes: nvidia-smi -lgc CLOCK",
            )
        self.grid_mhz = tuple(mhz for mhz in self.grid_mhz if mhz not in refused_mhz)


def window_length(context: JobContext, iteration_s: float) -> WindowLength:
    """How long a window is, in whose first iteration the clock changes.

    That costs the computations of its first second. Each one is measured twice all the same.
    """
    microbatches = context.job.schedule.microbatches
    alone = microbatches >= _MICROBATCHES and iteration_s >= _LONG * CHANGE_S
    least = 1 if alone else 2 if microbatches > 1 else 3
    return WindowLength(iteration_s, context.config.profile.min_window_s + CHANGE_S, least)
