"""What an iteration's kernels cost at every pair of clocks: profile and trace as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from perseus_ds.device.gpu import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence
from perseus_ds.solver.problem import Floats


class Level(Enum):
    """What shares one pair of clocks."""

    KERNEL = "kernel"
    INSTRUCTION = "instruction"
    PASS = "pass"  # noqa: S105  # no password

    def row_of(self, sequence: LaunchSequence, kernel: KernelClass) -> str:
        """Name what a launch shares its pair with."""
        match self:
            case Level.KERNEL:
                return str(kernel)
            case Level.INSTRUCTION:
                return str(sequence)
            case Level.PASS:
                return sequence.kind.name.lower()


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """One iteration, row by row: kernel classes, or instructions, or passes as a whole.

    A pair at which a row was not measured takes for ever. The first pair is the default one.

    Shape: ``time_s``, ``energy_j`` [rows, pairs], all launches of an iteration together.
    """

    rows: tuple[str, ...]
    pairs: tuple[ClockPair, ...]
    time_s: Floats
    energy_j: Floats

    @property
    def default_s(self) -> float:
        """The whole at default clocks."""
        return float(self.time_s[:, 0].sum())

    @property
    def default_j(self) -> float:
        """The whole at default clocks."""
        return float(self.energy_j[:, 0].sum())


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCosts:
    """One launch of every class of a trace at every pair.

    ``left_out`` are classes without a measurement: they have the default pair alone, with the duration
    that was traced and the mean power of the others.

    Shape: ``time_s``, ``energy_j`` [classes, pairs].
    """

    pairs: tuple[ClockPair, ...]
    time_s: Floats
    energy_j: Floats
    left_out: tuple[KernelClass, ...] = ()


def launch_costs(profile: KernelProfile, trace: KernelTrace) -> LaunchCosts:
    """Look up every class of the trace.

    Raises:
        IncompleteProfileError: none of the trace's classes was measured.
    """
    costs = _looked_up(profile.pairs, profile.points, trace, "time_s", "energy_j")
    known = np.isfinite(costs.time_s[:, 0])
    if not known.any():
        raise IncompleteProfileError(
            "the profile has none of the trace's kernel classes", hint="measure the kernels of this trace"
        )
    power_w = float(costs.energy_j[known, 0].sum() / costs.time_s[known, 0].sum())
    traced_s = _traced_s(trace)
    costs.time_s[~known, 0] = traced_s[~known]
    costs.energy_j[~known, 0] = power_w * traced_s[~known]
    return replace(costs, left_out=tuple(trace.classes[row] for row in np.flatnonzero(~known)))


def second_costs(profile: KernelProfile, trace: KernelTrace) -> tuple[LaunchCosts, LaunchCosts]:
    """Look up the second measurements, and their standard errors; what has none takes for ever."""
    pairs, points = profile.pairs, profile.second
    return (
        _looked_up(pairs, points, trace, "time_s", "energy_j"),
        _looked_up(pairs, points, trace, "time_se_s", "energy_se_j"),
    )


def _looked_up(
    pairs: tuple[ClockPair, ...],
    points: Mapping[KernelClass, Sequence[KernelPoint]],
    trace: KernelTrace,
    time: str,
    energy: str,
) -> LaunchCosts:
    column = {pair: place for place, pair in enumerate(pairs)}
    time_s = np.full((len(trace.classes), len(column)), np.inf)
    energy_j = np.full_like(time_s, np.inf)
    for row, kernel in enumerate(trace.classes):
        for point in points.get(kernel, ()):
            if point.pair in column:
                time_s[row, column[point.pair]] = getattr(point, time)
                energy_j[row, column[point.pair]] = getattr(point, energy)
    return LaunchCosts(pairs, time_s, energy_j)


def cost_table(costs: LaunchCosts, trace: KernelTrace, level: Level = Level.KERNEL) -> CostTable:
    """Add up the launches of an iteration for everything that shares a pair.

    A pair serves a pass or an instruction only where all of its kernels were measured at it.
    """
    groups: dict[str, Counter[int]] = {}
    for sequence in trace.sequences:
        for kernel, count in sequence.counts.items():
            name = level.row_of(sequence, trace.classes[kernel])
            groups.setdefault(name, Counter())[kernel] += count * sequence.times
    shape = (len(groups), len(costs.pairs))
    time_s, energy_j = np.empty(shape), np.empty(shape)
    for row, counts in enumerate(groups.values()):
        kernels, launches = list(counts), np.array(list(counts.values()), dtype=float)
        time_s[row] = launches @ costs.time_s[kernels]
        energy_j[row] = launches @ costs.energy_j[kernels]
    assert costs.pairs[0] == DEFAULT_PAIR
    return CostTable(tuple(groups), costs.pairs, time_s, energy_j)


def _traced_s(trace: KernelTrace) -> Floats:
    """Mean traced duration of one launch of each class; 0 where none is known.

    Shape: [classes].
    """
    total_s, launches = np.zeros(len(trace.classes)), np.zeros(len(trace.classes))
    for sequence in trace.sequences:
        for kernel, duration_s in zip(sequence.kernels, sequence.duration_s, strict=False):
            total_s[kernel] += duration_s
            launches[kernel] += 1
    return total_s / np.maximum(launches, 1.0)
