"""What is still to be paid along each lane: the least that levels and changes cost from here to the end."""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import LaneOutlook, Levels
from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.problem import Floats, Indices, OptionTable
from perseus_ds.solver.timeline.lanes import Lanes

COUNTED = 6_000_000
"""Numbers that an outlook may hold to count the changes that are left; else tolls keep them few."""


def outlook_of(
    tables: tuple[OptionTable, ...],
    choices: Choices,
    lanes: Lanes,
    levels: Levels,
    price: Floats,
    toll: Floats,
    home: Indices,
    most: int | None,
) -> LaneOutlook:
    """For every lane, place in its order and state before it: the least that the rest costs at these prices.

    With a price for every tick of duration and a toll for every change the lanes are apart. Each is one
    dynamic program over (activity, changes left, level): what a beam has to know of the future. At most so
    many changes (``most``) are counted, instead of tolls of their own.

    Shape: ``price`` [activities]; ``toll``, ``home`` (levels) [lanes]. The last row is the way back home.
    Cost: activities times states.
    """
    width, longest = levels.place.shape[1], max(map(len, lanes.orders))
    left = 0 if most is None else most
    extra = max(float(np.ptp(table.cost_j)) for table in tables)
    ahead = np.full((len(lanes), longest + 1, (left + 1) * width), np.inf)
    for lane, order in enumerate(lanes.orders):
        at_home = np.arange(width) == home[lane]
        ahead[lane, len(order)] = toll[lane]
        if most is not None:
            ahead[lane, len(order), :width] += extra
        ahead[lane, len(order)].reshape(-1, width)[:, at_home] = 0.0
        _look_back(order, choices, levels, price, toll[lane], extra, most is not None, ahead[lane])
    return LaneOutlook(ahead, toll, (left * width + home).astype(np.int32), extra)


@compiled
def _look_back(
    order: Indices,
    choices: Choices,
    levels: Levels,
    price: Floats,
    toll: float,
    extra: float,
    counted: bool,  # noqa: FBT001
    found: Floats,
) -> None:
    length, cost, width = choices.length, choices.cost, levels.place.shape[1]
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        row, worth = levels.place[levels.table[activity]], price[activity]
        fewer = 0.0  # the least with one change fewer left
        for left in range(found.shape[1] // width):
            base, least = left * width, np.inf
            for level in range(width):
                if row[level] >= 0:
                    found[at, base + level] = (
                        cost[row[level]] + worth * length[row[level]] + found[at + 1, base + level]
                    )
                    least = min(least, found[at, base + level])
            changed = toll + ((fewer if left else least + extra) if counted else least)
            for level in range(width):
                found[at, base + level] = min(found[at, base + level], changed)
            fewer = least
