"""When lanes change level: at the best moments, how often, and for how long each holds one.

Where a change falls within an activity is a linear program again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.frontier import Frontier, solve_frontier
from perseus_ds.solver.network import Whole, earliest_starts
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Problem, blended
from perseus_ds.solver.splits import long_enough, optimal_shares
from perseus_ds.solver.timeline.freedom import Freedom
from perseus_ds.solver.timeline.lanes import Lanes

AS_LONG = 1.0 + 1e-9
"""Times that differ by less are one."""


class Timelines(NamedTuple):
    """What every activity begins at, what it ends at, and the share of its work before the change.

    Shape: [plans, activities] each; ``choice`` and ``other`` are positions in the option tables.
    """

    choice: Indices
    other: Indices
    share: Floats

    def row(self, plan: int) -> Timelines:
        """One plan: [activities] each."""
        return Timelines(self.choice[plan], self.other[plan], self.share[plan])

    def first(self, plans: int) -> Timelines:
        """The first few plans."""
        return Timelines(self.choice[:plans], self.other[:plans], self.share[:plans])


def best_moments(frontier: Frontier, freedom: Freedom, times_s: Floats, *, least_part_s: float) -> Timelines:
    """Choose all shares at once, for many times: the exact optimum for these changes within each.

    Every activity becomes one with its two options. The problem is of the same kind, and its relaxed optimum
    is run exactly, but for parts shorter than ``least_part_s``.

    Cost: a small frontier, and linear in activities per time.
    """
    problem = frontier.whole.problem
    small_problem = _with_two_options(problem, freedom)
    until_s = max(float(np.max(times_s)), frontier.t_min_s) * AS_LONG
    down_to_s = float(np.min(times_s))
    small = solve_frontier(small_problem, until_s=until_s, down_to_s=down_to_s, around_s=times_s)
    within_s = np.unique(np.clip(times_s, small.t_min_s, small.t_star_s))
    share = _share_of_first(*optimal_shares(small, within_s, 0.0))
    choice, other = (np.broadcast_to(option, share.shape) for option in freedom)
    ones = np.ones(share.shape)
    first_s, rest_s = (blended(problem, option, option, ones)[0] for option in (choice, other))
    faster = first_s < rest_s
    fast = long_enough(
        np.where(faster, share, 1.0 - share),
        np.minimum(first_s, rest_s),
        np.maximum(first_s, rest_s),
        least_part_s,
    )
    share = np.where(choice == other, 1.0, np.where(faster, fast, 1.0 - fast))
    begins = np.where(share > 0.0, choice, other)
    ends = np.where(share < 1.0, other, choice)
    return Timelines(begins, ends, np.where(begins == ends, 1.0, share))


def _with_two_options(problem: Problem, freedom: Freedom) -> Problem:
    key = np.column_stack((problem.table_of, *freedom))
    rows, number = np.unique(key, axis=0, return_inverse=True)
    tables = []
    for table, *options in rows:
        own, kept = problem.tables[table], list(dict.fromkeys(options))
        tables.append(OptionTable(own.duration_s[kept], own.cost_j[kept]))
    return Problem(
        tuple(tables), number.reshape(-1).astype(np.int32), problem.before, problem.after, problem.delay_s
    )


def _share_of_first(choice: Indices, other: Indices, share: Floats) -> Floats:
    """The share done at option 0 of two; 1 where there is one alone."""
    return np.where(choice == 0, share, 0.0) + np.where(other == 0, 1.0 - share, 0.0)


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
