"""The two sides of a saving: iterations of the whole job, brought to one size where batches differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import at_size, differ, elasticity
from perseus_ds.run_directory import MeasuredSide
from perseus_ds.runtime.measure.accounting import Sample, Total
from perseus_ds.runtime.measure.robust import Estimated, added, alike, robust_mean

_Numbers = NDArray[np.float64]
_Key = tuple[int, int]  # a sample's first iteration, and how many


@dataclass(frozen=True, slots=True)
class Side:
    """Iterations of one mode that every rank has measured: as long as the slowest rank, the energy of all.

    ``rows`` are the samples rank by rank, for ranks that joined short iterations differently; then the
    arrays are empty. ``alike`` is how many samples of energy share one error, of each rank where there are
    ``rows``. ``size`` is how much all of them worked on, ``longest`` the most that any of them did.

    Shape: arrays [samples]; ``rows``, ``alike`` [ranks].
    """

    time_s: _Numbers
    energy_j: _Numbers
    size: _Numbers
    longest: _Numbers
    iterations: int
    rows: Sequence[Sequence[Sample]]
    alike: Sequence[float]

    @classmethod
    def of(cls, totals: Iterable[Total], periods_s: Sequence[float | None] = ()) -> Side | None:
        """Put together what all ranks measured; None before every rank has some.

        ``periods_s`` are those of their energy counters, None where one is not known.
        """
        known = list(totals)
        rows = [{(one.first, one.iterations): one for one in total.samples} for total in known]
        if not all(rows):
            return None
        common = _common(rows)
        shared = [[row[key] for row in rows] for key in common]
        alike = [[row[key] for key in common or row] for row in rows]
        return cls(
            _over_ranks(shared, max, lambda one: one.time_s),
            _over_ranks(shared, sum, lambda one: one.energy_j),
            _over_ranks(shared, sum, lambda one: one.size),
            _over_ranks(shared, max, lambda one: one.size),
            min(total.iterations for total in known),
            [list(row.values()) for row in rows],
            list(map(_alike, alike, periods_s or [None] * len(rows))),
        )

    def measured(self) -> MeasuredSide:
        """Means of the middle half, with their errors."""
        if len(self.time_s):
            time_s = robust_mean(list(self.time_s))
            energy_j = robust_mean(list(self.energy_j), alike=max(self.alike))
        else:  # errors are added as if they went together
            time_s = max((robust_mean([one.time_s for one in row]) for row in self.rows), key=_mean_of)
            energy_j = added(
                robust_mean([one.energy_j for one in row], alike=alike)
                for row, alike in zip(self.rows, self.alike, strict=True)
            )
        return MeasuredSide(
            iteration_time_s=time_s.mean,
            energy_j=energy_j.mean,
            iterations=self.iterations,
            iteration_time_se_s=time_s.se if time_s.freedom else None,
            energy_se_j=energy_j.se if energy_j.freedom else None,
            freedom=energy_j.freedom,
            time_freedom=time_s.freedom,
        )


def _common(rows: Sequence[Mapping[_Key, Sample]]) -> list[_Key]:
    """The samples that all ranks joined alike; none where they are less than half."""
    common = sorted(set(rows[0]).intersection(*rows[1:]))
    return [] if 2 * len(common) < min(map(len, rows)) else common


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
    sizes = np.concatenate([side.size for side in sides])
    longest = np.concatenate([side.longest for side in sides])
    if not (differ(sizes) or differ(longest)) or not all(len(side.size) for side in sides):
        return list(sides)
    slower = elasticity(*((side.longest, side.time_s) for side in sides))
    dearer = elasticity(*((side.size, side.energy_j) for side in sides))
    return [
        replace(
            side,
            time_s=at_size(side.time_s, side.longest, float(longest.mean()), power=slower),
            energy_j=at_size(side.energy_j, side.size, float(sizes.mean()), power=dearer),
        )
        for side in sides
    ]


def _alike(samples: Sequence[Sample], period_s: float | None) -> float:
    """How many samples share one error; one begins anew where it does not follow the one before it."""
    firsts = np.array([one.first for one in samples])
    ends = firsts + np.array([one.iterations for one in samples])
    begins = np.append(True, firsts[1:] != ends[:-1])  # the first one does
    return alike(np.array([one.time_s * one.iterations for one in samples]), begins, period_s)


def _mean_of(estimated: Estimated) -> float:
    return estimated.mean
