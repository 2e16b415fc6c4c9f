"""Time and energy of this rank's iterations, kept apart by what they ran at."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.device.gpu import Sighting
from perseus_ds.profile.loads import differ
from perseus_ds.run_directory.records import MeasuredSide, Spent
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.recorder import Iteration

_RECENT = 1000
_OPEN = 2000
_SAMPLE_PERIODS = 30  # of the counter: what a sample's ends leave open is then far below a hundredth of it
_SHORT_GAP = 0.05


class Mode(Enum):
    """The side of the comparison that an iteration counts for."""

    BASELINE = "baseline"
    PERSEUS = "perseus"
    NEITHER = "neither"
    BASELINE_BESIDE = "baseline beside a straggler"
    PERSEUS_BESIDE = "perseus beside a straggler"


def beside(mode: Mode) -> Mode:
    """Return the mode of an iteration beside a straggler: its time is not the plan's doing."""
    return {Mode.BASELINE: Mode.BASELINE_BESIDE, Mode.PERSEUS: Mode.PERSEUS_BESIDE}.get(mode, mode)


class Sample(NamedTuple):
    """Neighbouring iterations of one mode, long enough for the energy counter: means of one of them.

    ``first`` is the index of the first: the same on all ranks, as ``iterations`` is. ``size`` is how much one
    worked on (elements), 0 where it is unknown.
    """

    first: int
    iterations: int
    time_s: float
    energy_j: float
    size: float = 0.0


Samples = NDArray[np.void]
"""Rows of `Sample`, the oldest first: one array, since thousands of ranks send theirs to rank 0."""

_ROW = np.dtype({"names": Sample._fields, "formats": ("i8", "i8", "f8", "f8", "f8")})


def as_samples(rows: Iterable[Sample] = ()) -> Samples:
    """Put samples into one array, whose fields are theirs."""
    return np.array(list(rows), _ROW)


@dataclass(slots=True)
class Total:
    """Measurements of one mode: how many iterations ever, and samples of the last of them."""

    iterations: int = 0
    samples: Samples = field(default_factory=as_samples)

    def add(self, sample: Sample) -> None:
        self.iterations += sample.iterations
        self.samples = np.append(self.samples[1 - _RECENT :], as_samples([sample]))


@dataclass(frozen=True, slots=True)
class _Block:
    """Some iterations, or (``mode`` None) what lies between two; ``time_s`` is without what is between."""

    mode: Mode | None
    first: int
    start_s: float
    end_s: float
    time_s: float
    iterations: int
    microbatches: int = 0
    size: float = 0.0


# What one rank measured of its iterations, and what it reports of them after an audit.


@dataclass(frozen=True, slots=True)
class RankReport:
    """The report of one rank after an audit.

    ``outside`` is what its GPU took while the host did something else than train. ``period_s`` is its energy
    counter's, ``skipped`` how many iterations ended without an optimizer step.
    ``temperature_c`` is how warm it was on either side, where a sensor is read. ``troubles`` are what is
    wrong with its energy counter.
    """

    rank: int
    pipeline_rank: int
    replica: int
    totals: Mapping[Mode, Total]
    outside: Spent
    durations_s: Mapping[Mode, Sequence[float]]
    conflicts: tuple[Sighting, ...] = ()
    overrun_share: float = 0.0
    clock_requests: RequestCounts = field(default_factory=RequestCounts)
    period_s: float | None = None
    skipped: int = 0
    temperature_c: Mapping[Mode, float] = field(default_factory=dict)
    troubles: Sequence[str] = ()


class RankBooks:
    """Time and energy of one rank, iteration by iteration, by what each counts for.

    An iteration, and what lies between two, is booked when the energy counter has passed it. Batches of every
    size have totals of their own (``totals`` by size, then mode). Iterations shorter than ``_SAMPLE_PERIODS``
    of the counter are joined with their neighbours of the same mode. ``latest`` is what the last booked
    iterations took: energy (J) of one of them, mean power (W). ``at_plan`` counts iterations that a plan ran,
    whichever plan, by the size of their batches.

    ``sightings`` are those of others at work on its GPU, ``clock_requests`` what it asked of its GPU.
    ``overrun_share`` is of how many of its computations in scaled time the host was too slow.
    """

    def __init__(
        self,
        watch: EnergyWatch,
        *,
        sightings: Callable[[], tuple[Sighting, ...]],
        overrun_share: Callable[[], float],
        clock_requests: RequestCounts,
    ) -> None:
        self.watch = watch
        self.totals: defaultdict[int, dict[Mode, Total]] = defaultdict(_empty_totals)
        self.outside = Spent()
        self.at_plan: defaultdict[int, int] = defaultdict(int)
        self.latest: tuple[float, float] | None = None
        self._open: list[_Block] = []
        self._durations: dict[tuple[int, Mode], tuple[int, list[float]]] = {}
        self._modes: dict[int, Mode] = {}
        self._skipped = 0
        self._temperatures: dict[Mode, tuple[int, float]] = {}
        self._sightings, self._overrun_share = sightings, overrun_share
        self._clock_requests = clock_requests

    def enter(self, index: int, mode: Mode, passed: Sequence[Iteration], *, known: bool) -> None:
        """Note what iteration ``index`` counts for, and enter iterations that the device has passed.

        Where clocks are not ``known`` it counts for nothing. Nor do those before it then that the device had
        not passed when it ended.
        """
        self._modes[index] = mode
        if not known:
            self._modes = dict.fromkeys(self._modes, Mode.NEITHER)
        for iteration in passed:
            mode = self._modes.pop(iteration.index)
            self._skipped += iteration.skipped
            if iteration.resumed or iteration.skipped:
                mode = Mode.NEITHER
            if iteration.end_s <= iteration.start_s:
                continue  # nothing of it was seen
            mean_c = self.watch.temperatures.mean_c(iteration.start_s, iteration.end_s)
            if mean_c is not None:
                count, so_far_c = self._temperatures.get(mode, (0, 0.0))
                self._temperatures[mode] = count + 1, so_far_c + (mean_c - so_far_c) / (count + 1)
            self.add(mode, iteration)
            if mode is Mode.NEITHER:
                continue
            computed = (one for one in iteration.intervals if one.instruction.kind.is_computation)
            lasted_s = [one.end_s - one.start_s for one in computed]
            key = iteration.microbatches, mode
            count, sums = self._durations.get(key, (0, [0.0] * len(lasted_s)))
            if len(sums) == len(lasted_s):  # else it stopped half-way
                self._durations[key] = count + 1, list(map(add, sums, lasted_s))

    def add(self, mode: Mode, iteration: Iteration) -> None:
        """Enter one iteration; those before it are settled first.

        It joins the one before it where that is too short to stand alone, and nothing of length is between.
        """
        self._settle()
        start_s, outside_s, took_s = iteration.start_s, iteration.outside_s or 0.0, iteration.duration_s
        microbatches, size = iteration.microbatches, iteration.size
        new = _Block(mode, iteration.index, start_s, iteration.end_s, took_s, 1, microbatches, size)
        last = self._open[-1] if self._open else None
        if (
            last is not None
            and last.mode is mode
            and last.microbatches == microbatches
            and last.time_s < _SAMPLE_PERIODS * (self.watch.period_s or 0.0)
            and start_s - last.end_s <= _SHORT_GAP * took_s
        ):
            self._open.pop()
            self.outside = replace(self.outside, time_s=self.outside.time_s + max(0.0, outside_s))
            new = replace(
                new,
                first=last.first,
                start_s=last.start_s,
                time_s=last.time_s + took_s,
                iterations=last.iterations + 1,
                size=last.size + size,
            )
        elif outside_s > 0:
            self._open.append(_Block(None, iteration.index, start_s - outside_s, start_s, outside_s, 0))
        self._open.append(new)
        del self._open[:-_OPEN]  # where the counter stands still nothing is ever settled

    def _settle(self) -> None:
        """Book what more of the trace would not change: it has passed a block, or missed its begin."""
        opened = self._open
        settled: _Block | None = None
        if not opened or self.watch.period_s is None:
            opened.clear()
            return
        short_s = _SAMPLE_PERIODS * self.watch.period_s
        trace = self.watch.trace(opened[0].start_s)
        while opened and len(trace.time_s):
            block = opened[0]
            if trace.time_s[-1] < block.end_s and trace.time_s[0] <= block.start_s:
                break
            if len(opened) == 1 and block.mode is not None and block.time_s < short_s:
                break  # the next iteration may still join it
            settled = opened.pop(0)
            if block.mode is Mode.NEITHER or not trace.covers(block.start_s, block.end_s):
                continue
            power_w = trace.energy_between(block.start_s, block.end_s) / (block.end_s - block.start_s)
            if block.mode is None:
                before = self.outside
                self.outside = Spent(before.time_s + block.time_s, before.energy_j + power_w * block.time_s)
                continue
            total = self.totals[block.microbatches][block.mode]
            time_s, size = block.time_s / block.iterations, block.size / block.iterations
            total.add(Sample(block.first, block.iterations, time_s, power_w * time_s, size))
            if block.mode in {Mode.PERSEUS, Mode.PERSEUS_BESIDE}:
                self.at_plan[block.microbatches] += block.iterations
            self.latest = power_w * time_s, power_w
        oldest = opened[0] if opened else settled
        if oldest is not None and oldest.mode not in {None, Mode.NEITHER}:
            # what counts for neither may be a profile's window
            self.watch.forget(oldest.start_s if opened else oldest.end_s)

    def forget_plan(self, job: Job) -> None:
        """Begin the plan's side anew: another plan runs from here on."""
        microbatches = job.schedule.microbatches
        self.totals[microbatches][Mode.PERSEUS] = Total()
        self._durations.pop((microbatches, Mode.PERSEUS), None)
        self._temperatures.pop(Mode.PERSEUS, None)

    def report(self, job: Job) -> RankReport:
        """Report measurements of batches of this job's size; durations are means in running order."""
        microbatches = job.schedule.microbatches
        durations_s: dict[Mode, list[float]] = {}
        for mode in (Mode.BASELINE, Mode.PERSEUS):
            count, sums = self._durations.get((microbatches, mode), (1, []))
            durations_s[mode] = [total / count for total in sums]
        return RankReport(
            rank=job.rank,
            pipeline_rank=job.pipeline_rank,
            replica=job.replica,
            totals=self.totals[microbatches],
            outside=self.outside,
            durations_s=durations_s,
            conflicts=self._sightings(),
            overrun_share=self._overrun_share(),
            clock_requests=self._clock_requests,
            period_s=self.watch.seen_period_s,
            skipped=self._skipped,
            temperature_c={mode: mean_c for mode, (_, mean_c) in self._temperatures.items()},
            troubles=tuple(self.watch.troubles),
        )


def _empty_totals() -> dict[Mode, Total]:
    return {mode: Total() for mode in Mode if mode is not Mode.NEITHER}


# A mean that a few hiccups do not move, with its own standard error, and how many values share one.

_CUT = 0.25
_LEAST_FREEDOM = 0.5


@dataclass(frozen=True, slots=True)
class Estimated:
    """A mean, its standard error, and how many degrees of freedom that error has (0: it is not known)."""

    mean: float
    se: float
    freedom: float


def robust_mean(values: Sequence[float] | _Numbers, *, alike: float = 1.0) -> Estimated:
    """Mean of the middle half, with the error of a trimmed mean: the spread with both ends drawn in.

    Of the values ``alike`` count as one, since they share an error (`alike`). Fewer than four that do not
    are simply averaged.

    Source: Tukey and McLaughlin, Sankhya A 25 (1963).
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    cut = int(int(_CUT * count / alike) * alike)
    middle = ordered[cut : count - cut]
    kept = len(middle)
    freedom = kept / alike - 1.0
    if freedom < _LEAST_FREEDOM:
        return Estimated(float(middle.mean()) if kept else 0.0, math.inf, 0)
    drawn_in = np.clip(ordered, middle[0], middle[-1])
    spread = float(((drawn_in - drawn_in.mean()) ** 2).sum())
    return Estimated(float(middle.mean()), math.sqrt(spread / (kept * freedom)), freedom)


def alike(lasts_s: NDArray[np.float64], begins: NDArray[np.bool_], period_s: float | None) -> float:
    """Return how many measurements count as one; 1 where each is independent.

    A counter that watches a part of its period and takes that for the whole is wrong where the power changes.
    Measurements that begin at the same moment of a period are wrong alike. Half of them are high and half of
    them low where they begin at all moments.

    ``begins`` is true where a measurement does not follow the one before it at once. It then begins at an
    unknown moment of the period.

    The error of a power that steps is a saw-tooth over the moment of the period. The errors of two
    measurements that begin ``x`` periods apart correlate as ``1 - 6 x + 6 x^2``, x between 0 and 1. Errors
    that cancel more than by chance are not counted on.

    Shape: both [measurements], in the order of time.
    Cost: that of sorting them, for each rank; sums over all pairs follow from the sorted moments.
    """
    if not period_s or not len(lasts_s):
        return 1.0
    shared = 0.0
    for block_s in np.split(lasts_s, np.flatnonzero(begins)[1:]):
        moments = np.sort(np.concatenate([[0.0], np.cumsum(block_s[:-1])]) / period_s % 1.0)
        moments, count = moments - moments.mean(), len(moments)
        apart = (2.0 * np.arange(count) - (count - 1.0)) @ moments
        shared += float(count**2 - 12.0 * apart + 12.0 * count * (moments @ moments))
    return max(1.0, shared / len(lasts_s))


# The two sides of a saving: iterations of the whole job, brought to one size where batches differ.

_Numbers = NDArray[np.float64]
_STEEPEST = 2.0  # attention grows with the square of a sequence, and nothing grows faster


@dataclass(frozen=True, slots=True)
class Side:
    """Iterations of one mode that every rank has measured: as long as the slowest rank, the energy of all.

    Samples that begin at one iteration are of the same iterations, but for one that some rank may have joined
    to a short one. ``alike`` is how many samples of energy share one error. ``size`` is how much all ranks
    worked on, ``longest`` the most that any of them did.

    Shape: arrays [samples].
    """

    time_s: _Numbers
    energy_j: _Numbers
    size: _Numbers
    longest: _Numbers
    iterations: int
    alike: float

    @classmethod
    def of(cls, totals: Iterable[Total], periods_s: Sequence[float | None] = ()) -> Side | None:
        """Put together what all ranks measured; None before every rank has some.

        ``periods_s`` are those of their energy counters, None where one is not known.
        """
        known = list(totals)
        tables = [total.samples for total in known]
        common = reduce(np.intersect1d, [table["first"] for table in tables])
        if not len(common):
            return None
        rows = [table[np.searchsorted(table["first"], common)] for table in tables]
        return cls(
            np.max([row["time_s"] for row in rows], axis=0),
            np.sum([row["energy_j"] for row in rows], axis=0),
            np.sum([row["size"] for row in rows], axis=0),
            np.max([row["size"] for row in rows], axis=0),
            min(total.iterations for total in known),
            max(map(_alike, rows, periods_s or [None] * len(known))),
        )

    def averages(self) -> MeasuredSide:
        """Means of the middle half, with their errors."""
        time_s = robust_mean(self.time_s)
        energy_j = robust_mean(self.energy_j, alike=self.alike)
        return MeasuredSide(
            iteration_time_s=time_s.mean,
            energy_j=energy_j.mean,
            iterations=self.iterations,
            iteration_time_se_s=time_s.se if time_s.freedom else None,
            energy_se_j=energy_j.se if energy_j.freedom else None,
            freedom=energy_j.freedom,
            time_freedom=time_s.freedom,
        )


def at_one_size(sides: Sequence[Side]) -> list[Side]:
    """Bring both sides to the mean size of all, where batches differ: neither is compared with other batches.

    How time and energy grow with size follows from both together, each about its own mean. Energy grows with
    what all ranks worked on, time with what the slowest replica did, which all others wait for.
    """
    sizes, longest = [side.size for side in sides], [side.longest for side in sides]
    if not any(differ(np.concatenate(every)) for every in (sizes, longest)):
        return list(sides)
    times_s = _at_mean_size([side.time_s for side in sides], longest)
    energies_j = _at_mean_size([side.energy_j for side in sides], sizes)
    return [
        replace(side, time_s=time_s, energy_j=energy_j)
        for side, time_s, energy_j in zip(sides, times_s, energies_j, strict=True)
    ]


def _at_mean_size(values: Sequence[_Numbers], sizes: Sequence[_Numbers]) -> list[_Numbers]:
    """Scale by a power of size: the slope of a log-log line, with a level for each side; else 1."""
    mean = float(np.concatenate(sizes).mean())
    if min(side.min() for side in sizes) <= 0.0:
        return list(values)
    lines = [(np.log(size), np.log(value)) for size, value in zip(sizes, values, strict=True) if differ(size)]
    power = 1.0
    if lines:
        x, y = (np.concatenate([one - one.mean() for one in side]) for side in zip(*lines, strict=True))
        power = float(np.clip((x @ y) / (x @ x), 0.0, _STEEPEST))
    return [value * (mean / size) ** power for value, size in zip(values, sizes, strict=True)]


def _alike(samples: Samples, period_s: float | None) -> float:
    """Return how many samples share one error; one begins anew where it does not follow the one before it."""
    first, iterations, time_s = samples["first"], samples["iterations"], samples["time_s"]
    begins = np.append(True, first[1:] != (first + iterations)[:-1])  # the first one does
    return alike(time_s * iterations, begins, period_s)
