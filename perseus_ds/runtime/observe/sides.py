"""The two sides of a saving: iterations of the whole job, brought to one size where batches differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import at_size, differ, elasticity
from perseus_ds.run_directory import Measured
from perseus_ds.runtime.measure.accounting import Sample, Total
from perseus_ds.runtime.measure.robust import Estimated, added, robust_mean

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Side:
    """Iterations of one mode that every rank has measured: as long as the slowest rank, the energy of all.

    ``rows`` are the samples rank by rank, for ranks that joined short iterations differently; then the
    arrays are empty.

    Shape: arrays [samples]; ``rows`` [ranks].
    """

    time_s: _Numbers
    energy_j: _Numbers
    size: _Numbers
    iterations: int
    rows: Sequence[Sequence[Sample]]

    @classmethod
    def of(cls, totals: Iterable[Total]) -> Side | None:
        """Put together what all ranks measured; None before every rank has some."""
        known = list(totals)
        rows = [{(one.first, one.iterations): one for one in total.samples} for total in known]
        if not all(rows):
            return None
        common = sorted(set(rows[0]).intersection(*rows[1:]))
        if 2 * len(common) < min(map(len, rows)):
            common = []
        return cls(
            np.array([max(row[key].time_s for row in rows) for key in common]),
            np.array([sum(row[key].energy_j for row in rows) for key in common]),
            np.array([sum(row[key].size for row in rows) for key in common]),
            min(total.iterations for total in known),
            [list(row.values()) for row in rows],
        )

    def measured(self) -> Measured:
        """Means of the middle half, with their errors."""
        if len(self.time_s):
            time_s, energy_j = robust_mean(list(self.time_s)), robust_mean(list(self.energy_j))
        else:  # errors are added as if they went together
            time_s = max((robust_mean([one.time_s for one in row]) for row in self.rows), key=_mean_of)
            energy_j = added(robust_mean([one.energy_j for one in row]) for row in self.rows)
        return Measured(
            iteration_time_s=time_s.mean,
            energy_j=energy_j.mean,
            iterations=self.iterations,
            iteration_time_se_s=time_s.se if time_s.freedom else None,
            energy_se_j=energy_j.se if energy_j.freedom else None,
            freedom=energy_j.freedom,
        )


def at_one_size(sides: Sequence[Side]) -> list[Side]:
    """Bring both sides to the mean size of all, where batches differ: neither is compared with other batches.

    How time and energy grow with size is told by both together, each about its own mean.
    """
    sizes = np.concatenate([side.size for side in sides])
    if not differ(sizes) or not all(len(side.size) for side in sides):
        return list(sides)
    mean = float(sizes.mean())
    slower = elasticity(*((side.size, side.time_s) for side in sides))
    dearer = elasticity(*((side.size, side.energy_j) for side in sides))
    return [
        replace(
            side,
            time_s=at_size(side.time_s, side.size, mean, power=slower),
            energy_j=at_size(side.energy_j, side.size, mean, power=dearer),
        )
        for side in sides
    ]


def _mean_of(estimated: Estimated) -> float:
    return estimated.mean
