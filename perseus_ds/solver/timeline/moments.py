"""The same changes at better moments: where a change falls within an activity is a linear program again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.parametric.frontier import Frontier, solve_frontier
from perseus_ds.solver.plans import blended
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Problem
from perseus_ds.solver.splitting.split import long_enough, optimal_shares
from perseus_ds.solver.timeline.lanes import Lanes


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


class Freedom(NamedTuple):
    """The two options of each activity; where they differ, any share of its work may be done at the first.

    Shape: [activities] each.
    """

    choice: Indices
    other: Indices


class _Move(NamedTuple):
    """A change that may fall inside an activity: what that begins and ends at, and what it adds to a lane.

    ``worth`` is what the relaxed optimum's price sees between the two: little where it wants a mixture.
    ``boundaries`` are those (by the activity behind them) that it takes for itself.
    """

    worth: float
    at: int
    first: int
    last: int
    more: int
    boundaries: tuple[int, ...]


def freedom_of(
    choices: Choices,
    lanes: Lanes,
    levels: Levels,
    places: tuple[Indices, Indices],
    *,
    price: Floats,
    spare: Ints,
) -> Freedom:
    """Return which changes may move, and which activities may change once more.

    A change between two activities may fall into the one before it or the one behind it. An activity may go
    on at the level beside its own where its lane has changes to spare. Those come first that the price is
    most indifferent about; what is split already stays so.

    Shape: ``places`` that activities begin and end at, ``price`` [activities]; ``spare`` [lanes]: changes
    that a lane may still make.
    """
    choice, other = (choices.option[place] for place in places)
    for lane, order in enumerate(lanes.orders):
        begin, end = (levels.level[place[order]].tolist() for place in places)
        left, taken, mixed = int(spare[lane]), set[int](), set[int]()
        moves = _moves(choices, levels, order, (begin, end), price)
        for move in sorted(moves):
            if move.at in mixed or move.more > left or not taken.isdisjoint(move.boundaries):
                continue
            row = levels.place[levels.table[order[move.at]]]
            choice[order[move.at]] = choices.option[row[move.first]]
            other[order[move.at]] = choices.option[row[move.last]]
            mixed.add(move.at)
            taken.update(move.boundaries)
            left -= move.more
    return Freedom(choice, other)


def _moves(
    choices: Choices, levels: Levels, order: Indices, own: tuple[list[int], list[int]], price: Floats
) -> Iterator[_Move]:
    """All changes of one lane that may fall inside an activity that is whole.

    Shape: ``own`` the levels that its activities begin and end at.
    """
    begin, end = own
    around = zip(order, [*begin[:1], *end[:-1]], [*begin[1:], *end[-1:]], strict=True)
    for at, (activity, before, after) in enumerate(around):
        here, row = begin[at], levels.place[levels.table[activity]]
        if here != end[at]:
            continue
        worth = choices.cost[row] + price[activity] * choices.length[row]
        apart = np.where(row >= 0, np.abs(worth - worth[here]), np.inf).tolist()
        if before != here and row[before] >= 0:
            yield _Move(apart[before], at, before, here, 0, (at,))
        if after != here and row[after] >= 0:
            yield _Move(apart[after], at, here, after, 0, (at + 1,))
        more = 2 if after == here else 1
        for beside in _beside(row, here) if at + 1 < len(order) else ():
            if beside != after:
                yield _Move(apart[beside], at, here, beside, more, (at, at + 1))


def _beside(row: Indices, level: int) -> list[int]:
    """The next higher and the next lower level that a table has."""
    has = np.flatnonzero(row >= 0)
    at = int(np.searchsorted(has, level))
    return [int(has[near]) for near in (at - 1, at + 1) if 0 <= near < len(has)]


def best_moments(frontier: Frontier, freedom: Freedom, times_s: Floats, *, least_part_s: float) -> Timelines:
    """Choose all shares at once, for many times: the exact optimum for these changes within each.

    Every activity becomes one with its two options. The problem is of the same kind, and its relaxed optimum
    is run exactly, but for parts shorter than ``least_part_s``.

    Cost: a small frontier, and linear in activities per time.
    """
    problem = frontier.whole.problem
    small_problem = _with_two_options(problem, freedom)
    small = solve_frontier(small_problem, down_to_s=float(np.min(times_s)))
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
