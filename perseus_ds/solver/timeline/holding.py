"""How often lanes change level, and for how long each holds one."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.paths import earliest_starts
from perseus_ds.solver.plans import blended
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.timeline.lanes import Lanes
from perseus_ds.solver.timeline.moments import Timelines
from perseus_ds.solver.whole import Whole


def changes_of(problem: Problem, lanes: Lanes, found: Timelines) -> Ints:
    """How often each lane changes in an iteration, the way back to its beginning included.

    Shape: returns [plans, lanes].
    """
    counts = []
    for order in lanes.orders:
        begin, end = (_levels(lanes, problem.table_of[order], option[:, order]) for option in found[:2])
        counts.append((begin != np.roll(end, 1, axis=1)).sum(axis=1) + (begin != end).sum(axis=1))
    return np.column_stack(counts)


def shortest_holds_s(whole: Whole, lanes: Lanes, timeline: Timelines) -> Floats:
    """The shortest time that each lane holds a level, activities starting as early as they can.

    Iteration follows iteration, so the last level is held into the next. Infinite where nothing changes.

    Shape: ``timeline`` one row of ``Timelines``; returns [lanes].
    """
    problem = whole.problem
    ones = np.ones(len(timeline.share))
    first_s, _ = blended(problem, timeline.choice, timeline.choice, ones)
    duration_s, _ = blended(problem, *timeline)
    duration = whole.tick.whole(duration_s)
    start = earliest_starts(whole.graph, whole.delay, duration)
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
    """Levels of options: activities of these tables, last axis."""
    first = np.concatenate(([0], np.cumsum([len(own) for own in lanes.level_of])))[table]
    return np.asarray(np.concatenate(lanes.level_of)[first + option])
