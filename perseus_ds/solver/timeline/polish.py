"""The same changes at better moments: where a change falls within its activity is a linear program again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.discrete.choices import Choices
from perseus_ds.solver.parametric.frontier import Frontier, solve_frontier
from perseus_ds.solver.plans import Plans, blended
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable, Problem
from perseus_ds.solver.splitting.split import GRAIN, split
from perseus_ds.solver.timeline.lanes import Lanes, Levels


class Timeline(NamedTuple):
    """What every activity begins at, what it ends at, and the share of its work before the change.

    Shape: [activities] each; ``choice`` and ``other`` are positions in the option tables.
    """

    choice: Indices
    other: Indices
    share: Floats


class Levelled(NamedTuple):
    """One level for every activity: its place, and the ticks that it runs on at the level before.

    Shape: [activities] each.
    """

    place: Indices
    late: Ints


class Freedom(NamedTuple):
    """How far the share of each activity's first option may go, and which its options then are.

    Shape: [activities] each.
    """

    choice: Indices
    other: Indices
    least: Floats
    most: Floats


def polished(frontier: Frontier, freedom: Freedom, time_s: float, *, least_part_s: float) -> Timeline:
    """Choose all shares at once: the exact optimum for these changes within the time.

    Every activity becomes one with two options, its first option's least and largest share: a problem of
    the same kind, whose relaxed optimum is played exactly.

    Cost: a small frontier: from where every share is at its slower end down to the time.
    """
    problem = frontier.whole.problem
    refined = _refined(problem, freedom)
    small = solve_frontier(refined)
    found = split(refined, small, np.array([min(max(time_s, small.t_min_s), small.t_star_s)]))
    share = _shares(refined, freedom, found)
    whole = np.ones(len(share))
    first_s, _ = blended(problem, freedom.choice, freedom.choice, whole)
    rest_s, _ = blended(problem, freedom.other, freedom.other, whole)
    share = np.where(first_s < rest_s, np.ceil(share * GRAIN), np.floor(share * GRAIN)) / GRAIN
    short = (first_s < rest_s) & ((1.0 - share) * rest_s < least_part_s)
    share = np.where(short | (freedom.choice == freedom.other), 1.0, share)
    return Timeline(
        np.where(share > 0.0, freedom.choice, freedom.other), freedom.other, np.where(share > 0.0, share, 1.0)
    )


def freedom_of(
    choices: Choices, lanes: Lanes, levels: Levels, timeline: Levelled, *, least_part: int, spare: Ints
) -> Freedom:
    """Say how far each change may move, and which activities may change once more.

    A change at the beginning of an activity may come later in it. Lanes with changes to spare split others
    towards the next lower level, from the lag on, where nothing lower follows; what does follow then
    begins at its own level.

    Shape: ``spare`` [lanes]: changes that a lane may still make.
    """
    place, late = timeline
    choice, other = choices.option[place].copy(), choices.option[place].copy()
    least, most = np.zeros(len(place)), np.zeros(len(place))
    for lane, order in enumerate(lanes.orders):
        own = levels.level[place[order]]
        before, after, left, settled = np.roll(own, 1), np.roll(own, -1), int(spare[lane]), False
        for at, activity in enumerate(order):
            row, length = levels.place[levels.table[activity]], choices.length[place[activity]]
            if before[at] != own[at]:
                old = row[before[at]]
                if old >= 0 and not settled:
                    choice[activity] = choices.option[old]
                    least[activity] = min(1.0, late[activity] / choices.length[old])
                    most[activity] = max(least[activity], 1.0 - least_part / length if at else 0.0)
                settled = False
                continue
            slower = _next_lower(choices, row, own[at])
            more = 2 if after[at] == own[at] else 1
            first = max(levels.lag, least_part) / length
            fits = slower >= 0 and first < 1.0 - least_part / choices.length[row[slower]]
            if fits and after[at] <= own[at] and more <= left and at + 1 < len(order):
                other[activity] = choices.option[row[slower]]
                least[activity], most[activity] = first, 1.0
                left, settled = left - more, after[at] != own[at]
    return Freedom(choice, other, least, most)


def _next_lower(choices: Choices, row: Indices, own: int) -> int:
    """The next lower level of a table that costs less; -1 where there is none."""
    cheaper = [
        to
        for to in range(own + 1, len(row))
        if row[to] >= 0 and choices.cost[row[to]] < choices.cost[row[own]]
    ]
    return cheaper[0] if cheaper else -1


def _refined(problem: Problem, freedom: Freedom) -> Problem:
    key = np.column_stack((problem.table_of, freedom.choice, freedom.other, freedom.least, freedom.most))
    rows, number = np.unique(key, axis=0, return_inverse=True)
    tables = []
    for table, choice, other, least, most in rows:
        own = problem.tables[int(table)]
        shares = np.array([least, most]) if choice != other and most > least else np.array([most])
        columns = (own.duration_s, own.cost_j)
        tables.append(
            OptionTable(*(shares * c[int(choice)] + (1.0 - shares) * c[int(other)] for c in columns))
        )
    return Problem(
        tuple(tables), number.reshape(-1).astype(np.int32), problem.before, problem.after, problem.delay_s
    )


def _shares(refined: Problem, freedom: Freedom, found: Plans) -> Floats:
    """From shares of the two ends to shares of the two options."""
    one, two, part = found.choice[-1], found.other[-1], found.share[-1]
    single = np.array([len(table) == 1 for table in refined.tables])[refined.table_of]
    ends = np.column_stack((np.where(single, freedom.most, freedom.least), freedom.most))
    rows = np.arange(len(one))
    return np.asarray(np.clip(part * ends[rows, one] + (1.0 - part) * ends[rows, two], 0.0, 1.0))
