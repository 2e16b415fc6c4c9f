"""What is still to be paid along each lane: the least that levels and changes cost from here to the end."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

import numpy as np

from perseus_ds.solver.beam.beam import Outlook
from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiling.compiled import compiled
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.lanes import Lanes


def outlook_of(
    choices: Choices, lanes: Lanes, levels: Levels, price: Floats, toll: Floats, *, slant: float
) -> Outlook:
    """For every lane, place in its order and level before it: the least that the rest costs at these prices.

    With a price for every tick of duration and a toll for every change the lanes are apart, so each is one
    dynamic program over (activity, level): what a beam has to know of the future.

    The first change of a lane costs that share (``slant``) less than its toll, the last as much more: where
    all rounds of a schedule are alike, one toll would make all of them change or none.

    Shape: ``price`` [activities]; ``toll`` [lanes]. The last row is the way back to level 0.
    Cost: activities times levels squared.
    """
    longest = max(map(len, lanes.orders))
    ahead = np.zeros((len(lanes), longest + 1, levels.place.shape[1]))
    tolls = toll[:, None] * np.linspace(1.0 - slant, 1.0 + slant, longest + 1)
    for lane, order in enumerate(lanes.orders):
        _look_back(
            order,
            levels.table,
            levels.place,
            choices.length,
            choices.cost,
            price,
            tolls[lane],
            ahead[lane],
        )
    return Outlook(ahead, tolls)


@compiled
def _look_back(
    order: Indices,
    table: Indices,
    place: Indices,
    length: Ints,
    cost: Floats,
    price: Floats,
    toll: Floats,
    found: Floats,
) -> None:
    levels = place.shape[1]
    for level in range(levels):
        found[len(order), level] = toll[len(order)] if level else 0.0
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        row = place[table[activity]]
        least = np.inf
        for to in range(levels):
            if row[to] >= 0:
                worth = cost[row[to]] + price[activity] * length[row[to]] + found[at + 1, to]
                found[at, to] = worth
                least = min(least, worth)
            else:
                found[at, to] = np.inf
        for here in range(levels):
            found[at, here] = min(found[at, here], least + toll[at])
