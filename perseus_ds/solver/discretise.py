"""From durations to real options: for every wanted time a plan that keeps it, with its certified bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.solver.chains import Chains, chains_of, ordered
from perseus_ds.solver.choices import Choices, choices_of, reclaim
from perseus_ds.solver.dive import dive
from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.exchange import BAND, improve
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats, Indices, Problem
from perseus_ds.solver.relaxed import relaxed_at

WORK = 6000
"""Activities that one plan's improvement may visit: small problems get more passes."""
MOST_CHAINS = 129
"""Chains, and one, that a dive is worth: each costs a pass over the graph."""
FEWEST, MOST = 2, 12
"""Covers of all activities by chains that one plan is improved on."""


@dataclass(frozen=True, slots=True, eq=False)
class DiscretePlans:
    """Plans, time ascending and cost falling.

    ``time_s`` is the longest path of the chosen options, at most the wanted time; ``bound_j`` a lower
    bound on the cost of every plan that takes no longer than ``time_s``; ``choice`` are positions in the
    activities' option tables.

    Shape: ``time_s``, ``cost_j``, ``bound_j`` [plans]; ``choice`` [plans, activities].
    """

    time_s: Floats
    cost_j: Floats
    bound_j: Floats
    choice: Indices

    def __len__(self) -> int:
        return len(self.time_s)


def discretise(problem: Problem, frontier: Frontier, times_s: Floats) -> DiscretePlans:
    """Choose an option for every activity and every wanted time; drop plans that another beats.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: per plan, a dive and three improvements.
    """
    frontier.refuse_below(times_s)
    choices = choices_of(frontier.whole)
    whole, rows = frontier.whole, chains_of(frontier.whole.graph)
    places: list[Indices] = []
    for wanted_s in np.sort(np.asarray(times_s)):
        places.append(_plan(choices, frontier, rows, places[-1:], float(wanted_s)))
    ticks = np.array([whole.longest(choices.length[place]) for place in places], dtype=np.int64)
    time_s = whole.tick.real(ticks)
    choice = choices.option[np.array(places, dtype=np.int32).reshape(len(places), len(problem))]
    cost_j = _costs(problem, choice)
    best = _undominated(time_s, cost_j)
    return DiscretePlans(time_s[best], cost_j[best], bounds_at(frontier, time_s[best]), choice[best])


def rounded(choices: Choices, frontier: Frontier, time_s: float) -> tuple[int, Indices]:
    """Return whole ticks within the wanted time, and rounded places that keep them."""
    whole = frontier.whole
    wanted = _within(frontier, time_s)
    durations = whole.tick.whole(frontier.durations_at(time_s))
    return wanted, reclaim(whole.graph, whole.delay, choices, durations, wanted)


def _plan(
    choices: Choices, frontier: Frontier, rows: Chains, faster: list[Indices], time_s: float
) -> Indices:
    """Round in two ways, take the next faster plan too; improve all by exchange, keep the cheapest."""
    whole = frontier.whole
    wanted, simple = rounded(choices, frontier, time_s)
    starts = [simple, *faster]
    if len(rows.first) <= MOST_CHAINS:
        relaxed = relaxed_at(frontier, time_s)
        room = relaxed.end - relaxed.start - whole.fastest
        dived = dive(whole.graph, whole.delay, choices, relaxed, *ordered(rows, room), wanted)
        if dived[0] >= 0 and whole.longest(choices.length[dived]) <= wanted:
            starts.append(reclaim(whole.graph, whole.delay, choices, choices.length[dived], wanted))
    passes = min(max(WORK // len(simple), FEWEST), MOST)
    plans = [improve(whole.graph, whole.delay, choices, start, wanted, passes, BAND) for start in starts]
    return min(plans, key=lambda place: float(choices.cost[place].sum()))


def _within(frontier: Frontier, time_s: float) -> int:
    """Whole ticks that do not exceed the wanted time."""
    tick = frontier.whole.tick
    wanted = int(tick.whole(np.array(time_s)))
    return wanted - int(float(tick.real(np.array(wanted))) > time_s)


def _costs(problem: Problem, choice: Indices) -> Floats:
    first = np.concatenate(([0], np.cumsum([len(table) for table in problem.tables])))
    cost_j = np.concatenate([table.cost_j for table in problem.tables])
    return np.asarray(cost_j[first[problem.table_of] + choice].sum(axis=1))


def _undominated(time_s: Floats, cost_j: Floats) -> Indices:
    """Positions of the plans that no other beats in both time and cost, time ascending."""
    order = np.lexsort((cost_j, time_s))
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], cost_j[order][:-1])))
    return order[cost_j[order] < best_before].astype(np.int32)
