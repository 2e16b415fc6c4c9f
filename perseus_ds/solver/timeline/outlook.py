"""What is still to be paid along each lane: the least that levels and changes cost from here to the end."""
# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled
from perseus_ds.solver.discrete.choices import Choices
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.lanes import Lanes, Levels


def outlook(
    choices: Choices, lanes: Lanes, levels: Levels, price: Floats, idle: Ints, toll: Floats
) -> Floats:
    """For every lane, place in its order and level before it: the least that the rest costs at these prices.

    With a price for every tick of duration and a toll for every change the lanes are apart, so each is one
    dynamic program over (activity, level): what a beam has to know of the future.

    Shape: ``price``, ``idle`` (ticks of waiting before each activity) [activities]; ``toll`` [lanes]; returns
    [lanes, longest order + 1, levels]. The last row is the way back to level 0.
    Cost: activities times levels squared.
    """
    longest = max(map(len, lanes.orders))
    found = np.zeros((len(lanes), longest + 1, levels.place.shape[1]))
    for lane, order in enumerate(lanes.orders):
        _look_back(
            order,
            levels.table,
            levels.place,
            choices.length,
            choices.cost,
            price,
            idle,
            levels.lag,
            float(toll[lane]),
            found[lane],
        )
    return found


@compiled
def _look_back(
    order: Indices,
    table: Indices,
    place: Indices,
    length: Ints,
    cost: Floats,
    price: Floats,
    idle: Ints,
    lag: int,
    toll: float,
    found: Floats,
) -> None:
    levels = place.shape[1]
    for level in range(levels):
        found[len(order), level] = toll if level else 0.0
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        row = place[table[activity]]
        late = max(lag - idle[activity], 0)
        for here in range(levels):
            best = np.inf
            for to in range(levels):
                if row[to] < 0:
                    continue
                paid = cost[row[to]] + price[activity] * length[row[to]]
                if to > here and late > 0 and row[here] >= 0:
                    share = min(late / length[row[here]], 1.0)
                    old = cost[row[here]] + price[activity] * length[row[here]]
                    paid = share * old + (1.0 - share) * paid
                paid += found[at + 1, to] + (toll if to != here else 0.0)
                best = min(best, paid)
            found[at, here] = best
