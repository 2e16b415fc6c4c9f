"""What a choice is really worth: reported by measurements that had no part in choosing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.kernels.choose.choose import ChosenPairs
from perseus_ds.kernels.choose.table import CostTable
from perseus_ds.solver.problem import Floats, Ints


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Change of time and energy by the second measurement, with their standard errors in points."""

    time_pct: float
    energy_pct: float
    time_se_pct: float
    energy_se_pct: float


def confirm(chosen: ChosenPairs, second: CostTable, spread: CostTable) -> Confirmed | None:
    """Add the second measurements up; ``None`` where a row that changes its pair has none.

    The numbers that a choice was made from are too good, since the lucky ones were chosen. A second
    measurement of the same pairs, and of the default one, has no such bias. ``spread`` holds the standard
    errors of the second measurement; those of rows are taken as independent.
    """
    moved = np.flatnonzero(chosen.option)
    if not np.isfinite([second.time_s[moved, chosen.option[moved]], second.time_s[moved, 0]]).all():
        return None
    time = _change(chosen, moved, chosen.table.time_s, second.time_s, spread.time_s)
    energy = _change(chosen, moved, chosen.table.energy_j, second.energy_j, spread.energy_j)
    return Confirmed(time[0], energy[0], time[1], energy[1])


def _change(
    chosen: ChosenPairs, moved: Ints, first: Floats, second: Floats, spread: Floats
) -> tuple[float, float]:
    """The change of the sum in percent, and its standard error: rows that stay at the default add none."""
    option = chosen.option[moved]
    whole = first[:, 0].sum() - first[moved, 0].sum() + second[moved, 0].sum()
    change = (second[moved, option] - second[moved, 0]).sum()
    variance = (spread[moved, option] ** 2 + spread[moved, 0] ** 2).sum()
    return 100.0 * float(change / whole), 100.0 * float(np.sqrt(variance) / whole)
