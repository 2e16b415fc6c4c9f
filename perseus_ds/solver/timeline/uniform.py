"""One level per lane from beginning to end: what is left where no lane may change at all."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.network import Whole
from perseus_ds.solver.problem import Indices
from perseus_ds.solver.timeline.lanes import Lanes


def one_level_each(
    whole: Whole, choices: Choices, lanes: Lanes, levels: Levels, wanted: int
) -> Indices | None:
    """Lower the lane that gains most per step while the longest path keeps the wanted ticks.

    None where not even the fastest common level of every lane keeps it.

    Shape: returns places [activities].
    Cost: lanes times levels squared longest paths.
    """
    place = choices.first.copy()
    common = [_common(levels, order) for order in lanes.orders]
    if not all(map(len, common)):
        return None
    at = [0] * len(lanes)
    for lane, order in enumerate(lanes.orders):
        place[order] = levels.place[levels.table[order], common[lane][0]]
    if whole.longest(choices.length[place]) > wanted:
        return None
    spent_j = [_spent_j(choices, levels, order, own) for order, own in zip(lanes.orders, common, strict=True)]
    open_lanes = set(range(len(lanes)))
    while open_lanes:
        lower = {lane: _lower(spent_j[lane], at[lane]) for lane in open_lanes}
        gains = {lane: spent_j[lane][at[lane]] - spent_j[lane][step] for lane, step in lower.items() if step}
        open_lanes &= set(gains)
        for lane in sorted(gains, key=gains.__getitem__, reverse=True):
            moved, order = place.copy(), lanes.orders[lane]
            moved[order] = levels.place[levels.table[order], common[lane][lower[lane]]]
            if whole.longest(choices.length[moved]) <= wanted:
                place, at[lane] = moved, lower[lane]
                break
            open_lanes.discard(lane)
    return place


def _common(levels: Levels, order: Indices) -> Indices:
    """Levels that every activity of a lane has."""
    return np.flatnonzero((levels.place[levels.table[order]] >= 0).all(axis=0)).astype(np.int32)


def _spent_j(choices: Choices, levels: Levels, order: Indices, common: Indices) -> list[float]:
    """What a lane costs at each of its common levels."""
    return [float(choices.cost[levels.place[levels.table[order], level]].sum()) for level in common]


def _lower(spent_j: list[float], at: int) -> int:
    """The next lower level that costs less; 0 if no lower level does."""
    return next((step for step in range(at + 1, len(spent_j)) if spent_j[step] < spent_j[at]), 0)
