"""The same changes at better moments: where a change falls within an activity is a linear program again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.parametric.frontier import Frontier, solve_frontier
from perseus_ds.solver.plans import blended
from perseus_ds.solver.problem import Floats, Indices, OptionTable, Problem
from perseus_ds.solver.splitting.split import long_enough, optimal_shares
from perseus_ds.solver.timeline.freedom import Freedom

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
