"""From a window of iterations on every rank to the profile of the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import cast

from perseus_ds.errors import IncompleteProfileError, PerseusError, UnmeasurableError, as_perseus_error
from perseus_ds.profile import (
    Computation,
    CounterTrace,
    Interval,
    LoadFit,
    Point,
    Profile,
    Sweep,
    Window,
    fit_of,
)
from perseus_ds.profile.estimating.estimate import Estimate, estimate
from perseus_ds.profile.estimating.thermal import Thermal, Warming, Warmth
from perseus_ds.profile.next_clock import filed
from perseus_ds.runtime.conflicts import ControlWatch
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.event_log import log_troubles, whose
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.measuring.held import held_clocks
from perseus_ds.runtime.pooling import Measured, Pooled, joined_loads, pool
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Kind, Load

CHANGE_S = 1.0
"""How long a clock may take to change and settle: computations that begin within it are not measured."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A rank's report that its driver does not take the clock."""

    clock_mhz: int


def pooled(
    context: JobContext,
    clock_mhz: int,
    estimated: Callable[[], Estimate],
    *,
    refused: bool = False,
    troubles: Sequence[str] = (),
) -> Pooled | None:
    """Gather what every rank estimates of its window and pool it; an error of one is an error of all.

    ``refused``: this rank's driver does not take the clock. The result is None if any rank's does not.
    ``troubles`` are what is wrong with this rank's energy counter.

    Raises:
        UnmeasurableError: some rank cannot measure at all.
        IncompleteProfileError: some rank could not report anything from its window.
        EngineError: a rank fell silent.
    """
    everyone = _reports(
        context,
        clock_mhz,
        lambda: Refused(clock_mhz) if refused else Measured(context.job.replica, estimated(), troubles),
    )
    refusals = {rank: one for rank, one in enumerate(everyone) if isinstance(one, Refused)}
    _log_refused(context, refusals)
    return None if refusals else pool(one for one in everyone if isinstance(one, Measured))


def _reports(
    context: JobContext, clock_mhz: int, own: Callable[[], Measured | Refused]
) -> list[Measured | Refused]:
    """Gather every rank's report; the others wait for this rank, so that its error is one of all."""
    try:
        mine: Measured | Refused | PerseusError = own()
    except Exception as error:  # noqa: BLE001  # whatever it is, the others hear of it
        mine = as_perseus_error(error)
    everyone = cast("list[Measured | Refused | PerseusError]", context.channel.gather(mine))
    for rank, one in enumerate(everyone):
        if isinstance(one, PerseusError):
            again = UnmeasurableError if isinstance(one, UnmeasurableError) else IncompleteProfileError
            raise again(f"profiling at {clock_mhz} MHz on rank {rank}: {one.message}", hint=one.hint)
    found = cast("list[Measured | Refused]", everyone)
    log_troubles(
        context.log, {rank: one.troubles for rank, one in enumerate(found) if isinstance(one, Measured)}
    )
    return found


def _log_refused(context: JobContext, refusals: Mapping[int, Refused]) -> None:
    for clock_mhz in sorted({one.clock_mhz for one in refusals.values()}):
        ranks = [rank for rank, one in refusals.items() if one.clock_mhz == clock_mhz]
        named = whose(ranks)
        context.log.event(
            "clock_refused",
            f"the driver of {named} refuses {clock_mhz} MHz: no plan uses it, profiling goes on without it",
            clock_mhz=clock_mhz,
            ranks=ranks,
        )


def window_estimate(
    watch: EnergyWatch,
    control: ControlWatch,
    clock_mhz: int,
    iterations: Sequence[Iteration],
    *,
    loads: Mapping[int, Load],
    warmth: Warmth,
) -> Estimate:
    """Estimate a window on this rank, its durations brought to the ``loads`` of its stages (`Window`).

    ``warmth`` is how warm this GPU was before.

    Raises:
        UnmeasurableError: the energy of this rank's GPU cannot be read.
        IncompleteProfileError: the window shows nothing.
    """
    if watch.useless:
        raise UnmeasurableError(watch.useless, hint="see perseus-ds doctor on its host")
    iterations = _measured(iterations, control)
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
    thermal, power_w = _thermal(watch, warmth), mean_power_w(window.counter, start_s, end_s)
    watch.forget(min(end_s, warmth.until_s))
    return replace(
        estimate(window),
        thermal=thermal,
        settled_c=None if thermal is None or power_w is None else thermal.settled_c(power_w),
    )


def _measured(iterations: Sequence[Iteration], control: ControlWatch) -> Sequence[Iteration]:
    """Leave out iterations that count for nothing."""
    iterations = [one for one in iterations if not (one.void or one.skipped)]
    if not iterations:
        raise IncompleteProfileError("no iteration of the window could be measured")
    if control.uncontrolled_s >= iterations[0].start_s:
        raise IncompleteProfileError("its guard was gone, or did not answer, for a while")
    return iterations


def without_changes(
    iterations: Sequence[Iteration],
) -> tuple[tuple[Interval, ...], list[tuple[float, float]]]:
    """Leave out the computations in which the clock may still change; return when these ran as well.

    They begin within `CHANGE_S` of the first iteration of a run of them. Other instructions stay: both ends
    of a transfer are compared one by one.
    """
    kept: list[Interval] = []
    changes: list[tuple[float, float]] = []
    before = None
    for iteration in iterations:
        intervals = iteration.intervals
        if before is None or iteration.index != before + 1:
            changes.append((iteration.start_s, iteration.start_s + CHANGE_S))
        begin_s, until_s = changes[-1]
        left = [one for one in intervals if one.kind.is_computation and one.start_s < until_s]
        if left:
            changes[-1] = begin_s, max(until_s, *(one.end_s for one in left))
        kept += [one for one in intervals if not one.kind.is_computation or one.start_s >= until_s]
        before = iteration.index
    return tuple(kept), changes


def _thermal(watch: EnergyWatch, warmth: Warmth) -> Thermal | None:
    """Take in what was read since the last window; None once the sensor is not believed."""
    trace = watch.trace(-math.inf if warmth.until_s == math.inf else warmth.until_s)
    warmth.over(trace, watch.temperatures.between(-math.inf, math.inf))
    return None if watch.temperatures.reason else warmth.thermal()


def mean_power_w(trace: CounterTrace, start_s: float, end_s: float) -> float | None:
    """The mean power of a stretch of time; None where the counter was not watched over all of it."""
    if not len(trace):
        return None
    begin_s, until_s = max(start_s, float(trace.time_s[0])), min(end_s, float(trace.time_s[-1]))
    return trace.energy_between(begin_s, until_s) / (until_s - begin_s) if until_s > begin_s else None


def profile_of(
    context: JobContext,
    sweep: Sweep,
    windows: Sequence[Pooled],
    *,
    warming: Warming,
    grid_mhz: Sequence[int],
) -> Profile:
    """Join the windows of a finished sweep; blocking power is the one at the highest clock.

    All energies are as if the GPU had the temperature that it settles at with default clocks. All durations
    are the mean of those batches that were seen in any window. What was held down is filed under the clock
    that it reached; ``grid_mhz`` are the clocks that the GPUs have.
    """
    blocking_w = _blocking_w(sweep.clocks_mhz, windows, warming)

    def warmed(key: Computation, point: Point) -> Point:
        return _scaled(_warmed(point, warming.missing_w(key, point)), _larger(key, windows))

    return Profile(
        points={
            key: filed([warmed(key, point) for point in points], grid_mhz)
            for key, points in sweep.points.items()
        },
        blocking_power_w=blocking_w[sweep.clocks_mhz[0]],
        blocking_w=blocking_w,
        size_variation=fmean(window.size_variation for window in windows),
        loads=load_fits(windows),
        leakage=warming.leakage,
        leakage_se=warming.leakage_se,
        fixed_s=_fixed_s(windows),
        fingerprint=dict(context.job.profile_fingerprint),
        window_s=context.config.profile.min_window_s,
        calibration=context.reckoning.calibration,
        grid_mhz=tuple(mhz for mhz in grid_mhz if min(sweep.clocks_mhz) < mhz < sweep.clocks_mhz[0]),
    )


def _blocking_w(clocks_mhz: Sequence[int], windows: Sequence[Pooled], warming: Warming) -> dict[int, float]:
    """Blocking power at each clock that was held, at the temperature that the GPU settles at."""
    held = held_clocks(clocks_mhz, windows)
    return {
        clock: max(0.0, window.blocking_power_w + warming.blocking_w(window.points))
        for clock, window in zip(clocks_mhz, windows, strict=False)
        if clock in held
    }


def load_fits(windows: Sequence[Pooled]) -> dict[Computation, LoadFit]:
    """Fit relative durations to the loads of all windows, whatever their clocks; empty where none differ."""
    fits = {key: fit_of(sums) for key, sums in joined_loads(window.loads for window in windows).items()}
    return {key: fit for key, fit in fits.items() if fit is not None}


def _fixed_s(windows: Sequence[Pooled]) -> dict[Computation, float]:
    """The shortest of all windows, whose rest was waiting; of the step, which may be skipped, the median."""
    return {
        key: (median if key[1] is Kind.STEP else min)(window.fixed_s[key] for window in windows)
        for key in windows[0].fixed_s
    }


def _warmed(point: Point, leaks_w: float) -> Point:
    return replace(point, energy_j=point.energy_j + leaks_w * point.time_s)


def _larger(key: Computation, windows: Sequence[Pooled]) -> float:
    """How much more work a computation is in all windows than at the size that they were brought to."""
    return fmean(window.larger.get(key, 1.0) for window in windows)


def _scaled(point: Point, times: float) -> Point:
    """The same at as much more work: all but the powers grow alike."""
    sd_s = None if point.time_sd_s is None else times * point.time_sd_s
    return replace(
        point,
        time_s=times * point.time_s,
        energy_j=times * point.energy_j,
        time_se_s=times * point.time_se_s,
        energy_se_j=times * point.energy_se_j,
        time_sd_s=sd_s,
    )
