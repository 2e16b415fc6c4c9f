"""The frontier as CSV, one row per plan: for plots and for other tools."""

from __future__ import annotations

import csv
from pathlib import Path

from perseus_ds.plan import PlanSet

COLUMNS = ("iteration_time_s", "energy_j", "effective_energy_j", "lower_bound_j")


def write_frontier(plans: PlanSet, path: Path) -> None:
    """Write all plans, iteration time ascending.

    ``energy_j`` and ``lower_bound_j`` are totals of one pipeline over the row's own iteration time.
    """
    columns = (getattr(plans, name).tolist() for name in COLUMNS)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(zip(*columns, strict=True))
