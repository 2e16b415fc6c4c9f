"""The ways to run one computation: at one clock, or along a timeline of clocks that its kernels are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PlanError
from perseus_ds.plan.timelines import ClockSegments, InstructionTimelines
from perseus_ds.schedule import Kind

AS_LONG = 1e-6
"""The stretches of a timeline add up to its time, but for this share of it."""


class Segment(NamedTuple):
    """A stretch of a computation at one clock; ``memory_mhz`` None is the device's own memory clock."""

    clock_mhz: int
    memory_mhz: int | None
    duration_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The ways that one computation can run, and what they cost: whole clocks first, then timelines.

    A timeline changes clocks at moments of its own, between kernels: it is not split. ``spared_w`` is what
    a GPU that waits behind one spares (W) by its memory clock. ``margin_s`` is what a clock is planned longer
    for the profile's own errors (`plan.solving.margins`); None without errors. ``leaks_alike`` states whether
    timelines are as warm as the whole clocks: at the temperature of default clocks.

    Shape: ``clock_mhz``, ``margin_s`` [clocks], highest first; ``time_s``, ``energy_j`` [clocks + timelines].
    """

    clock_mhz: NDArray[np.int64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    timelines: tuple[tuple[Segment, ...], ...] = ()
    spared_w: Mapping[int, float] = field(default_factory=dict)
    margin_s: NDArray[np.float64] | None = None
    leaks_alike: bool = False

    def planned_s(self, reserve_pct: float) -> NDArray[np.float64]:
        """Durations to plan with: slower than at the fastest clock they are longer by reserve and margin."""
        slower = self.time_s > self.time_s[: len(self.clock_mhz)].min()
        kept_s = np.where(slower, self.time_s * (1.0 + reserve_pct / 100.0), self.time_s)
        if self.margin_s is not None:
            clocks = len(self.clock_mhz)
            kept_s[:clocks] += np.where(slower[:clocks], self.margin_s, 0.0)
        return kept_s

    def segments(self, option: int) -> tuple[Segment, ...]:
        """What clocks are held in the order of time, and for how long."""
        clocks = len(self.clock_mhz)
        if option < clocks:
            return (Segment(int(self.clock_mhz[option]), None, float(self.time_s[option])),)
        return self.timelines[option - clocks]

    def mean_mhz(self, option: int) -> float:
        """The core clock, averaged over the duration."""
        segments = self.segments(option)
        lasts_s = sum(one.duration_s for one in segments)
        return sum(one.clock_mhz * one.duration_s for one in segments) / lasts_s

    def with_timelines(self, given: InstructionTimelines) -> Options:
        """Add timelines.

        Where it is known what they were found to take at the default clocks, they are scaled to what was
        measured there. The parts that the job's own measurement sees and the kernels' does not are in all of
        them alike. A clock that was left to the device is the highest.
        """
        times, joules = 1.0, 1.0
        if given.default is not None:
            times = float(self.time_s[0]) / given.default.time_s
            joules = float(self.energy_j[0]) / given.default.energy_j
        highest_mhz = int(self.clock_mhz[0])
        lines = tuple(_segments(one, times, highest_mhz) for one in given.timelines)
        return replace(
            self,
            time_s=np.append(self.time_s, [sum(s.duration_s for s in line) for line in lines]),
            energy_j=np.append(self.energy_j, [one.energy_j * joules for one in given.timelines]),
            timelines=self.timelines + lines,
            spared_w={**self.spared_w, **dict(given.spared_w)},
            leaks_alike=given.temperature_c is not None,
        )


def joined(
    options: Mapping[tuple[int, Kind], Options], given: Sequence[InstructionTimelines]
) -> dict[tuple[int, Kind], Options]:
    """Add the timelines of all instructions.

    Raises:
        PlanError: timelines of an instruction that is not planned.
    """
    found = dict(options)
    for one in given:
        key = (one.stage, one.kind)
        if key not in found:
            raise PlanError(
                f"there are timelines for the {one.kind.name.lower()} of stage {one.stage}, which this job"
                " does not run",
                hint="give the timelines of this job's kernels",
            )
        found[key] = found[key].with_timelines(one)
    return found


def _segments(timeline: ClockSegments, times: float, highest_mhz: int) -> tuple[Segment, ...]:
    """Steps as stretches; those whose clocks are alike are one."""
    ends_s = [*(step.offset_s for step in timeline.steps[1:]), timeline.time_s]
    segments: list[Segment] = []
    for step, end_s in zip(timeline.steps, ends_s, strict=True):
        clock_mhz = step.pair.clock_mhz or highest_mhz
        one = Segment(clock_mhz, step.pair.memory_mhz, times * (end_s - step.offset_s))
        if segments and segments[-1][:2] == one[:2]:
            one = one._replace(duration_s=segments.pop().duration_s + one.duration_s)
        segments.append(one)
    return tuple(segments)
