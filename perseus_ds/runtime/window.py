"""From a window of iterations on every rank to the profile of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from statistics import fmean, median

import numpy as np

from perseus_ds.device.gpu import Achieved, ConflictKind, conflicts, is_held
from perseus_ds.errors import IncompleteProfileError, UnmeasurableError
from perseus_ds.profile import CounterTrace, Interval, Point, Profile
from perseus_ds.profile.iterations import IterationModel
from perseus_ds.profile.loads import LoadFit, differ, fit_of
from perseus_ds.profile.records import Computation
from perseus_ds.profile.sweep import keyed_by_achieved_clock
from perseus_ds.profile.temperature import TemperatureCorrection
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.pooling import MeasuredSweep, Pooled, joined_loads
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Kind, Load

# Which clocks a GPU held under a job's load, and whether somebody else set them: from what was read back.


def held_clocks(clocks_mhz: Sequence[int], windows: Sequence[Pooled]) -> frozenset[int]:
    """The clocks that every GPU held under load, and the highest, which stands for its own choice.

    What was measured at a clock that does not hold is of another one: whatever power or heat allowed just
    then. A clock that nobody read counts as held.
    """
    held = {
        clock
        for clock, window in zip(clocks_mhz, windows, strict=False)
        if all(one.achieved_mhz is None or is_held(clock, one.achieved_mhz) for one in window.points.values())
    }
    return frozenset({clocks_mhz[0]} | held)


def refuse_foreign_clock(clock_mhz: int, looks: Sequence[Achieved], *, held_mhz: int) -> None:
    """Refuse a window in which somebody else sets this GPU's clock, by the guard's rule and in every look.

    ``held_mhz`` is the highest clock that this GPU has held in the sweep.

    Raises:
        UnmeasurableError: with both clocks.
    """
    if not clock_mhz or not looks:
        return
    reasons = reduce(or_, (one.event_reasons for one in looks))
    seen = [Achieved(edge(one.clock_mhz for one in looks), reasons) for edge in (max, min)]
    foreign = [
        one
        for edge in seen
        for one in conflicts(clock_mhz, edge, held_mhz=held_mhz)
        if one.kind is ConflictKind.FOREIGN_CLOCK
    ]
    if len(foreign) == len(seen):
        raise UnmeasurableError(foreign[0].line)


def same_clock(warm: Pooled, cool: Pooled) -> bool:
    """Return whether two windows at one clock reached the same one; an unread clock counts as reached."""
    both = [
        (warm.points[key].achieved_mhz, cool.points[key].achieved_mhz)
        for key in warm.points.keys() & cool.points
    ]
    return all(
        one is None or other is None or (is_held(one, other) and is_held(other, one)) for one, other in both
    )


_FINE = 0.8
CHANGE_S = 1.0
"""Time that a clock may take to change and settle: computations that begin within it are not measured."""


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


def mean_power_w(trace: CounterTrace, start_s: float, end_s: float) -> float | None:
    """The mean power of a stretch of time; None where the counter was not watched over all of it."""
    if not len(trace):
        return None
    begin_s, until_s = max(start_s, float(trace.time_s[0])), min(end_s, float(trace.time_s[-1]))
    return trace.energy_between(begin_s, until_s) / (until_s - begin_s) if until_s > begin_s else None


def profile_of(
    context: JobContext,
    sweep: MeasuredSweep,
    *,
    warming: TemperatureCorrection,
    grid_mhz: Sequence[int],
) -> Profile:
    """Join the windows of a finished sweep; blocking power is the one at the highest clock.

    All energies are as if the GPU had the temperature that it settles at with default clocks. All durations
    are the mean of those batches that were seen in any window. What was held down is filed under the clock
    that it reached; ``grid_mhz`` are the clocks that the GPUs have.
    """
    windows = sweep.windows
    held = held_clocks(sweep.clocks_mhz, windows)
    blocking_w = {
        clock: max(0.0, window.blocking_power_w + warming.blocking_w(window.points))
        for clock, window in zip(sweep.clocks_mhz, windows, strict=False)
        if clock in held
    }

    def correct(key: Computation, point: Point) -> Point:
        """Correct for the temperature, and bring to the mean work of all windows (all but powers)."""
        times = fmean(window.larger.get(key, 1.0) for window in windows)
        spread_s = None if context.job.replayed else point.time_sd_s  # nobody saw single ones
        return replace(
            point,
            time_s=times * point.time_s,
            energy_j=times * (point.energy_j + warming.power_correction_w(key, point) * point.time_s),
            time_se_s=times * point.time_se_s,
            energy_se_j=times * point.energy_se_j,
            time_sd_s=None if spread_s is None else times * spread_s,
        )

    return Profile(
        points={
            key: keyed_by_achieved_clock([correct(key, point) for point in points], grid_mhz)
            for key, points in sweep.points.items()
        },
        blocking_power_w=blocking_w[sweep.clocks_mhz[0]],
        blocking_w=blocking_w,
        size_variation=fmean(window.size_variation for window in windows),
        loads=load_fits(windows),
        leakage=warming.leakage,
        leakage_se=warming.leakage_se,
        # the shortest of all windows, whose rest was waiting; of the step, which may be skipped, the median
        fixed_s={
            key: (median if key[1] is Kind.STEP else min)(window.fixed_s[key] for window in windows)
            for key in windows[0].fixed_s
        },
        fingerprint=dict(context.job.profile_fingerprint),
        window_s=context.config.profile.min_window_s,
        calibration=context.reckoning.calibration,
        grid_mhz=_between(grid_mhz, sweep.clocks_mhz, fine=context.job.replayed),
    )


def _between(grid_mhz: Sequence[int], clocks_mhz: Sequence[int], *, fine: bool) -> tuple[int, ...]:
    """Return the clocks between those measured; of the lower ones every third where high ones are to be fine.

    With one clock for an iteration a rank cannot be split between two: each step costs or saves a percent.
    """
    inside = [mhz for mhz in grid_mhz if min(clocks_mhz) < mhz < clocks_mhz[0]]
    high = [mhz for mhz in inside if not fine or mhz >= _FINE * clocks_mhz[0]]
    return (*high, *sorted(set(inside) - set(high), reverse=True)[::3])


def load_fits(windows: Sequence[Pooled]) -> dict[Computation, LoadFit]:
    """Fit relative durations to the loads of all windows, whatever their clocks; empty where none differ."""
    fits = {key: fit_of(sums) for key, sums in joined_loads(window.loads for window in windows).items()}
    return {key: fit for key, fit in fits.items() if fit is not None}


# Jobs of which only the beginning and the end of an iteration are seen, since it is replayed or compiled.
#
# `Weighing` slows all ranks, then each in turn. The model that it fits says when each computation ran within
# an iteration. From there on profile, plan, run and audit are those of every job.


class WholeIterations:
    """Shows when computations ran, in windows of iterations that were seen as wholes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.model = IterationModel(context.job.schedule, context.job.weights)

    def lasts_s(self, window: Sequence[Iteration]) -> list[float]:
        """Return how long each iteration took, on the rank where it took longest; collective."""
        own = [0.0 if one.void else one.end_s - _begin_s(one) for one in window]
        everyone = self._context.channel.gather(own)
        return [max(several) for several in zip(*everyone, strict=True)]

    def fill(self, window: Sequence[Iteration]) -> list[Iteration]:
        """Return the window with the computations of this rank, without its first iteration; collective.

        In that one the clock changed, which stretches its beginning alone.
        """
        rank = self._context.job.pipeline_rank
        return [
            one
            if one.void
            else replace(
                one,
                intervals=(
                    *(i for i in one.intervals if not i.kind.is_computation),
                    *self.model.intervals(rank, _begin_s(one), lasts_s),
                ),
            )
            for one, lasts_s in list(zip(window, self.lasts_s(window), strict=True))[1:]
        ]


def _begin_s(iteration: Iteration) -> float:
    """Return when its pass began: the optimizer step before it belongs to the iteration too."""
    return max((one.end_s for one in iteration.intervals), default=iteration.start_s)


# The loads that a window's microbatches had, on every rank: counted by the first stage, shared by all.

_MOST_SHARED = 256  # microbatches of a window and replica: 10 kB
_EXPLAINS = 0.25
_MOST_REFUSED = 3  # windows of a sweep, each twice as long as the one before

_Key = tuple[int, int]  # iteration, microbatch
_ALL = -1, -1


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one rank of a replica's first stage, by (iteration, microbatch).

    Of ``shared`` microbatches; one entry stands for all where their loads are alike.
    """

    replica: int
    loads: Mapping[_Key, tuple[float, float]]
    shared: int

    def each(self) -> list[Load]:
        """Return the load of every microbatch that is shared."""
        found = [Load(*load) for load in self.loads.values()]
        return found * self.shared if _ALL in self.loads else found

    def of(self, key: _Key) -> Load | None:
        """Return the load of a microbatch; None where it was not shared."""
        found = self.loads.get(_ALL, self.loads.get(key))
        return None if found is None else Load(*found)


class WindowLoads:
    """Share the loads of every window, so that all stages' durations are held against the same numbers.

    Only the first stage sees lengths. A later one sees at most the shape of what it receives, which proves
    nothing where sequences are packed. Where no first stage counts, each rank keeps what it saw itself.
    ``mean`` is what durations of all windows are brought to: the mean load of the first one.

    A window of one load alone does not show how durations follow loads. Where batches have other loads for
    some iterations on end, clocks would be held against each other by a law that nobody measured.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._mean: Load | None = None
        self._own_means: dict[int, Load] | None = None
        self._seen: list[Load] = []
        self._refused = 0

    def share(self, window: Sequence[Iteration]) -> tuple[list[Iteration], dict[int, Load]]:
        """Return a window with its loads, and by model stage the load to bring it to; collective.

        Raises:
            EngineError: a rank fell silent.
            IncompleteProfileError: all of it was of one load, and others were seen before.
        """
        own = self._context.job.replica
        everyone = self._context.channel.gather(_count_loads(own, window))
        counted = [one for one in everyone if one is not None]
        loads = [load for one in counted for load in one.each()]
        self._see(loads)
        self._refuse_one_load(loads)
        mine = next((one for one in counted if one.replica == own), None)
        if self._mean is None or mine is None:
            self._own_means = self._own_means or _means(window)
            return list(window), self._own_means
        stages = {interval.instruction.stage for one in window for interval in one.intervals}
        counts_itself = stages == {0}
        told = list(window) if counts_itself else [_with_loads(one, mine) for one in window]
        return told, dict.fromkeys(stages, self._mean)

    def _refuse_one_load(self, loads: Sequence[Load]) -> None:
        if self._refused < _MOST_REFUSED and not _differ(loads) and _differ(self._seen):
            self._refused += 1
            raise IncompleteProfileError("all microbatches had one load, which was another before")

    def log_mean(self) -> None:
        """State for which load the profile holds, where loads differ."""
        if _differ(self._seen):
            mean = Load.mean_of(self._seen).tokens
            self._context.log.event(
                "mean_size",
                f"the profile, and what is expected of plans, is for microbatches of {mean:.0f} tokens, the "
                "mean of those seen",
                tokens=mean,
            )

    def log_fits(self, fits: Mapping[tuple[int, Kind], LoadFit]) -> None:
        """Report once how much of what durations vary by the loads explain."""
        if not fits:
            return
        best = max(fits.values(), key=lambda fit: fit.r2)
        if best.r2 < _EXPLAINS:
            line = (
                f"the loads of microbatches explain {100.0 * best.r2:.0f} % at most of how durations vary: "
                "nothing is held against them"
            )
        else:
            scatter = max(fit.scatter for fit in fits.values())
            line = (
                f"durations follow the loads of microbatches: these explain {100.0 * best.r2:.0f} % of how "
                f"they vary, and leave {100.0 * scatter:.1f} % of scatter at most"
            )
        self._context.log.event(
            "loads", line, r2={f"{s}{kind.value}": fit.r2 for (s, kind), fit in fits.items()}
        )

    def _see(self, loads: Sequence[Load]) -> None:
        self._seen += loads
        if self._mean is None and loads:
            self._mean = Load.mean_of(loads)
            tokens = np.array([load.tokens for load in loads])
            if differ(tokens):
                times = tokens.max() / tokens.min()
                self._context.log.event(
                    "sizes_differ",
                    f"microbatches differ in size, by {times:.2g} times so far: measurements are brought "
                    "to one size, and the plan is for the mean size",
                )


def _count_loads(replica: int, window: Sequence[Iteration]) -> Counted | None:
    """Return the counts of this rank on the first stage; None on other stages, or if loads are unknown."""
    loads = {
        (one.index, interval.instruction.microbatch): interval.load
        for one in window
        for interval in one.intervals
        if interval.kind.runs_forward and interval.instruction.stage == 0 and interval.load is not None
    }
    found = {key: (load.tokens, load.squares) for key, load in list(loads.items())[:_MOST_SHARED]}
    shared = len(found)
    if len(set(loads.values())) == 1:
        found = {_ALL: next(iter(found.values()))}
    return Counted(replica, found, shared) if found else None


def _differ(loads: Sequence[Load]) -> bool:
    return bool(loads) and differ(np.array([load.tokens for load in loads]))


def _with_loads(iteration: Iteration, known: Counted) -> Iteration:
    intervals = tuple(
        replace(one, load=known.of((iteration.index, one.instruction.microbatch)))
        if one.kind.is_computation
        else one
        for one in iteration.intervals
    )
    return replace(iteration, intervals=intervals)


def _means(window: Sequence[Iteration]) -> dict[int, Load]:
    """Mean load of the microbatches of every model stage of this rank; empty where nobody counts them."""
    counted: dict[int, list[Load]] = {}
    for iteration in window:
        for interval in iteration.intervals:
            if interval.load is not None:
                counted.setdefault(interval.instruction.stage, []).append(interval.load)
    return {stage: Load.mean_of(loads) for stage, loads in counted.items()}
