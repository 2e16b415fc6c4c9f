"""How one lane answers prices and a toll: its cheapest levels, by a dynamic program over its activities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiled import inner
from perseus_ds.solver.problem import Floats, Indices


class LaneTable(NamedTuple):
    """A lane's activities in running order, what they may run at, and what is written of their answer.

    ``ahead`` is the least that the lane costs from each activity on by the level before it, ``answer`` the
    level taken there.

    Shape: ``order`` [activities of the lane]; ``ahead`` [activities + 1, levels] and ``answer``
    [activities, levels] of the longest lane at least.
    """

    order: Indices
    choices: Choices
    levels: Levels
    ahead: Floats
    answer: Indices


@inner
def look_back(lane: LaneTable, price: Floats, toll: float, home: int) -> int:
    """Fill what is ahead and the answer; return the level it would begin at were none before it."""
    order, ahead, answer = lane.order, lane.ahead, lane.answer
    table, place, length, cost = lane.levels.table, lane.levels.place, lane.choices.length, lane.choices.cost
    width, best = place.shape[1], 0
    for level in range(width):
        ahead[len(order), level] = 0.0 if level == home else toll
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        own, worth = table[activity], price[activity]
        least, best = np.inf, 0
        for level in range(width):
            there = place[own, level]
            answer[at, level] = level
            if there >= 0:
                ahead[at, level] = cost[there] + worth * length[there] + ahead[at + 1, level]
                if ahead[at, level] < least:
                    least, best = ahead[at, level], level
            else:
                ahead[at, level] = np.inf
        for level in range(width):
            if least + toll < ahead[at, level]:
                ahead[at, level], answer[at, level] = least + toll, best
    return best


@inner
def follow(lane: LaneTable, home: int, duration: Floats) -> float:
    """Write what each activity lasts by the answer; return how often the lane changes."""
    order, answer, length = lane.order, lane.answer, lane.choices.length
    table, place = lane.levels.table, lane.levels.place
    here, changes = home, 0.0
    for at in range(len(order)):
        activity = order[at]
        there = answer[at, here]
        if there != here:
            changes += 1.0
            here = there
        duration[activity] = length[place[table[activity], here]]
    if here != home:
        changes += 1.0
    return changes
