"""For how long each lane holds a level, from one change to the next."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.paths import earliest_starts
from perseus_ds.solver.plans import blended
from perseus_ds.solver.problem import Floats, Indices
from perseus_ds.solver.timeline.lanes import Lanes
from perseus_ds.solver.timeline.polish import Timeline
from perseus_ds.solver.whole import Whole


def shortest_holds_s(whole: Whole, lanes: Lanes, timeline: Timeline) -> Floats:
    """The shortest time that each lane holds a level, activities starting as early as they can.

    Iteration follows iteration, so the last level is held into the next. Infinite where nothing changes.

    Shape: returns [lanes].
    """
    problem = whole.problem
    ones = np.ones(len(timeline.share))
    first_s, _ = blended(problem, timeline.choice, timeline.choice, ones)
    duration_s, _ = blended(problem, *timeline)
    free = np.zeros(0, dtype=np.bool_)
    duration = whole.tick.whole(duration_s)
    start = earliest_starts(whole.graph, whole.delay, duration, free, duration)
    start_s = whole.tick.real(start)
    lasts_s = float(whole.tick.real((start + duration).max()))
    inside_s = start_s + timeline.share * first_s
    holds_s = np.full(len(lanes), np.inf)
    for lane, order in enumerate(lanes.orders):
        begin, end = (_levels(lanes, problem.table_of[order], option[order]) for option in timeline[:2])
        changed = begin != np.roll(end, 1), begin != end
        changes_s = np.sort(np.concatenate((start_s[order][changed[0]], inside_s[order][changed[1]])))
        if len(changes_s):
            holds_s[lane] = np.diff(changes_s, append=changes_s[0] + lasts_s).min()
    return holds_s


def _levels(lanes: Lanes, table: Indices, option: Indices) -> Indices:
    return np.array([lanes.level_of[t][o] for t, o in zip(table, option, strict=True)], np.int32)
