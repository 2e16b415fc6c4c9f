"""The two sides of a saving: iterations of the whole job, brought to one size where batches differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import differ
from perseus_ds.run_directory.records import MeasuredSide
from perseus_ds.runtime.measure.accounting import Sample, Total
from perseus_ds.runtime.measure.robust import alike, robust_mean

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
        rows = [{one.first: one for one in total.samples} for total in known]
        common = sorted(set(rows[0]).intersection(*rows[1:]))
        if not common:
            return None
        shared = [[row[first] for row in rows] for first in common]
        periods = periods_s or [None] * len(rows)
        return cls(
            _over_ranks(shared, max, lambda one: one.time_s),
            _over_ranks(shared, sum, lambda one: one.energy_j),
            _over_ranks(shared, sum, lambda one: one.size),
            _over_ranks(shared, max, lambda one: one.size),
            min(total.iterations for total in known),
            max(map(_alike, zip(*shared, strict=True), periods)),
        )

    def measured(self) -> MeasuredSide:
        """Means of the middle half, with their errors."""
        time_s = robust_mean(list(self.time_s))
        energy_j = robust_mean(list(self.energy_j), alike=self.alike)
        return MeasuredSide(
            iteration_time_s=time_s.mean,
            energy_j=energy_j.mean,
            iterations=self.iterations,
            iteration_time_se_s=time_s.se if time_s.freedom else None,
            energy_se_j=energy_j.se if energy_j.freedom else None,
            freedom=energy_j.freedom,
            time_freedom=time_s.freedom,
        )


def _over_ranks(
    shared: Sequence[Sequence[Sample]],
    fold: Callable[[Iterable[float]], float],
    of: Callable[[Sample], float],
) -> _Numbers:
    return np.array([fold(map(of, ranks)) for ranks in shared])


def at_one_size(sides: Sequence[Side]) -> list[Side]:
    """Bring both sides to the mean size of all, where batches differ: neither is compared with other batches.

    How time and energy grow with size follows from both together, each about its own mean. Energy grows with
    what all ranks worked on, time with what the slowest replica did, which all others wait for.
    """
    if not any(differ(np.concatenate(every)) for every in _sizes_of(sides)):
        return list(sides)
    sizes, longest = _sizes_of(sides)
    times_s = _at_mean_size([side.time_s for side in sides], longest)
    energies_j = _at_mean_size([side.energy_j for side in sides], sizes)
    return [
        replace(side, time_s=time_s, energy_j=energy_j)
        for side, time_s, energy_j in zip(sides, times_s, energies_j, strict=True)
    ]


def _sizes_of(sides: Sequence[Side]) -> tuple[list[_Numbers], list[_Numbers]]:
    return [side.size for side in sides], [side.longest for side in sides]


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


def _alike(samples: Sequence[Sample], period_s: float | None) -> float:
    """How many samples share one error; one begins anew where it does not follow the one before it."""
    firsts = np.array([one.first for one in samples])
    ends = firsts + np.array([one.iterations for one in samples])
    begins = np.append(True, firsts[1:] != ends[:-1])  # the first one does
    return alike(np.array([one.time_s * one.iterations for one in samples]), begins, period_s)
