"""One level per lane from beginning to end: what is left where no lane may change at all."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.problem import Indices
from perseus_ds.solver.timeline.lanes import Lanes
from perseus_ds.solver.whole import Whole


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
    open_lanes = set(range(len(lanes)))
    while open_lanes:
        tried = {
            lane: _lower(choices, levels, lanes.orders[lane], place, common=common[lane], at=at[lane])
            for lane in open_lanes
        }
        gains = {lane: gain for lane, (gain, _, _) in tried.items() if gain > 0.0}
        open_lanes &= set(gains)
        for lane in sorted(gains, key=gains.__getitem__, reverse=True):
            _, moved, step = tried[lane]
            if whole.longest(choices.length[moved]) <= wanted:
                place, at[lane] = moved, step
                break
            open_lanes.discard(lane)
    return place


def _common(levels: Levels, order: Indices) -> Indices:
    """Levels that every activity of a lane has."""
    return np.flatnonzero((levels.place[levels.table[order]] >= 0).all(axis=0)).astype(np.int32)


def _lower(
    choices: Choices, levels: Levels, order: Indices, place: Indices, *, common: Indices, at: int
) -> tuple[float, Indices, int]:
    """The next lower level that costs less, what it gains, and the places then."""
    now_j = choices.cost[place[order]].sum()
    for step in range(at + 1, len(common)):
        moved = place.copy()
        moved[order] = levels.place[levels.table[order], common[step]]
        gain = float(now_j - choices.cost[moved[order]].sum())
        if gain > 0.0:
            return gain, moved, step
    return 0.0, place, at
