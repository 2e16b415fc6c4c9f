"""Which clocks a job's sweep measures, and what that costs: chosen on rank 0, alike for all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import Sweep
from perseus_ds.profile.next_clock import PLACES, clocks_held, next_clock
from perseus_ds.profile.sweep_cost import SweepCost, SweepPace, WindowLength, coming_after, cost_of
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.measuring.profiling import CHANGE_S
from perseus_ds.runtime.measure.sweeps import Sweeps

_MICROBATCHES = 8
"""An iteration of as many shows each computation often enough: of four, transfers came out too long."""
_LONG = 6
_MOST_REFUSED = 8


class ClockChoice:
    """Chooses the clocks of every group's sweep within the user's limits.

    Shape: ``grids_mhz`` [groups].
    """

    def __init__(self, context: JobContext, iteration_s: float) -> None:
        self._context = context
        self._settings = context.config.profile
        self.window = window_length(context, iteration_s)
        self.grids_mhz = _grids(context)
        self.count = min(self._settings.max_clocks or len(PLACES), len(PLACES))

    def begun(self) -> Sweeps:
        """Begin with the highest clock of every group."""
        return Sweeps([Sweep(grid[:1]) for grid in self.grids_mhz], mine=self._context.job.group)

    def pace(self) -> SweepPace:
        """How many iterations at default clocks the sweep is diluted by."""
        return SweepPace(self._settings.max_slower_pct, coming_after(self.window.at()))

    def cost(self, settling: int) -> SweepCost:
        """What the sweep costs, of the group whose clocks cost most."""
        return max((self._cost(grid, settling) for grid in self.grids_mhz), key=lambda one: one.lasts_s)

    def left_s(self, sweeps: Sweeps, pace: SweepPace) -> float:
        """How much longer the sweep will last; 0 once it is through."""
        if sweeps.finished:
            return 0.0
        ahead = SweepPace(pace.most_slower_pct, pace.coming, pace.ran, pace.surely_lost)
        for slower in [sweeps.slower, *self._slower_later(sweeps)]:
            iterations = self.window.at(pace.lasts(slower))
            ahead.pass_(ahead.rests(iterations, slower))
            ahead.pass_(iterations, slower)
            ahead.pass_(1)
        return (ahead.ran + ahead.lost - pace.ran - pace.surely_lost) * self.window.iteration_s

    def _slower_later(self, sweeps: Sweeps) -> list[float]:
        """How much slower the clocks are that come after the next one."""
        coming = [
            [sweep.slower(mhz) for mhz in clocks_held(grid, self.count)[sweep.done + 1 :]]
            for sweep, grid in zip(sweeps.sweeps, self.grids_mhz, strict=True)
        ]
        return max(coming, key=sum)

    def go_on(self, sweeps: Sweeps) -> None:
        """Have every group measure its next clock, where it has one; collective.

        Raises:
            SilentRankError: a rank fell silent.
        """
        sweeps.go_on(self._context.channel.broadcast_result(lambda: self._chosen(sweeps)))

    def leave_out_refused(self, sweeps: Sweeps) -> None:
        """Choose no clock any more that a driver has refused.

        Raises:
            IncompleteProfileError: a driver takes hardly any clock of its own list.
        """
        for group, sweep in enumerate(sweeps.sweeps):
            if len(sweep.refused_mhz) > _MOST_REFUSED:
                clocks = ", ".join(map(str, sorted(sweep.refused_mhz)))
                raise IncompleteProfileError(
                    f"the driver lists {clocks} MHz and refuses every one of them",
                    hint="see which it takes: nvidia-smi -lgc CLOCK",
                )
            grid = self.grids_mhz[group]
            self.grids_mhz[group] = tuple(mhz for mhz in grid if mhz not in sweep.refused_mhz)

    def _chosen(self, sweeps: Sweeps) -> list[int | None]:
        return [
            next_clock(sweep.points, sweep.clocks_mhz, grid, self.count)
            for sweep, grid in zip(sweeps.sweeps, self.grids_mhz, strict=True)
        ]

    def _cost(self, grid_mhz: Sequence[int], settling: int) -> SweepCost:
        return cost_of(
            [grid_mhz[0] / clock for clock in clocks_held(grid_mhz, self.count)],
            window=self.window,
            most_slower_pct=self._settings.max_slower_pct,
            settling=settling,
        )


def window_length(context: JobContext, iteration_s: float) -> WindowLength:
    """How long a window is, in whose first iteration the clock changes.

    That costs the computations of its first second. Each one is measured twice all the same.
    """
    microbatches = context.job.schedule.microbatches
    alone = microbatches >= _MICROBATCHES and iteration_s >= _LONG * CHANGE_S
    least = 1 if alone else 2 if microbatches > 1 else 3
    return WindowLength(iteration_s, context.config.profile.min_window_s + CHANGE_S, least)


def _grids(context: JobContext) -> list[tuple[int, ...]]:
    """The clocks of every group, highest first; collective where there are several."""
    job, clocks_mhz = context.job, context.capabilities.clocks_mhz
    grids = {job.group: clocks_mhz}
    if job.mixed:
        announced = cast("list[tuple[int, tuple[int, ...]]]", context.channel.gather((job.group, clocks_mhz)))
        grids = dict(reversed(announced)) | grids
    return [tuple(sorted(grids[group], reverse=True)) for group in sorted(grids)]
