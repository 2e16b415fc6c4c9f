"""From measured points to a convex curve: the lower-left hull of one table of options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.solver.problem import Floats, Ints, OptionTable


@dataclass(frozen=True, slots=True, eq=False)
class Hull:
    """The options on a table's lower-left hull, fastest first, cost strictly falling.

    ``option`` are positions in the table; ``price`` [points - 1] is the cost saved per second of stretching
    from one point to the next, strictly falling.

    Units: watts where costs are joules.
    """

    option: Ints
    duration_s: Floats
    cost_j: Floats

    @property
    def price_w(self) -> Floats:
        """Cost saved per second on every segment."""
        return -np.diff(self.cost_j) / np.diff(self.duration_s)

    def cost_at(self, duration_s: Floats) -> Floats:
        """Interpolate the convex curve; a duration outside it costs what the nearer end costs."""
        return np.interp(duration_s, self.duration_s, self.cost_j)


def pareto(table: OptionTable) -> Ints:
    """Positions of the options that no other beats in both duration and cost, fastest first."""
    order = np.lexsort((table.cost_j, table.duration_s))
    cost = table.cost_j[order]
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], cost[:-1])))
    return order[cost < best_before].astype(np.int64)


def hull_of(table: OptionTable) -> Hull:
    """Keep the options that some price of time makes best.

    Cost: linear after sorting.
    Source: Andrew 1979, the monotone chain.
    """
    kept: list[int] = []
    for option in pareto(table).tolist():
        while len(kept) > 1 and not _turns_left(table, kept[-2], kept[-1], option):
            kept.pop()
        kept.append(option)
    chosen = np.array(kept, dtype=np.int64)
    return Hull(chosen, table.duration_s[chosen], table.cost_j[chosen])


def _turns_left(table: OptionTable, first: int, middle: int, last: int) -> bool:
    """Whether the price falls strictly from (first, middle) to (middle, last)."""
    time, cost = table.duration_s, table.cost_j
    rise = (cost[first] - cost[middle]) * (time[last] - time[middle])
    return bool(rise > (cost[middle] - cost[last]) * (time[middle] - time[first]))
