"""From durations to real options: for every wanted time a plan that keeps it, with its certified bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.solver.choices import Choices, choices_of, reclaim
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats, Indices, Problem


@dataclass(frozen=True, slots=True, eq=False)
class DiscretePlans:
    """One plan per wanted time.

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
    """Choose an option for every activity and every wanted time.

    Raises:
        InfeasibleError: a wanted time below T_min.
    """
    choices = choices_of(frontier.whole)
    plans = [_plan(choices, frontier, float(time_s)) for time_s in np.asarray(times_s)]
    time_s = frontier.whole.tick.real(np.array([ticks for ticks, _ in plans], dtype=np.int64))
    choice = np.array([chosen for _, chosen in plans], dtype=np.int32).reshape(len(plans), len(problem))
    return DiscretePlans(time_s, _costs(problem, choice), frontier.cost_at(time_s), choice)


def _plan(choices: Choices, frontier: Frontier, time_s: float) -> tuple[int, Indices]:
    whole = frontier.whole
    wanted = _within(frontier, time_s)
    durations = whole.tick.whole(frontier.durations_at(time_s))
    place = reclaim(whole.graph, whole.delay, choices, durations, wanted)
    return whole.longest(choices.length[place]), choices.option[place]


def _within(frontier: Frontier, time_s: float) -> int:
    """Whole ticks that do not exceed the wanted time."""
    tick = frontier.whole.tick
    wanted = int(tick.whole(np.array(time_s)))
    return wanted - int(float(tick.real(np.array(wanted))) > time_s)


def _costs(problem: Problem, choice: Indices) -> Floats:
    first = np.concatenate(([0], np.cumsum([len(table) for table in problem.tables])))
    cost_j = np.concatenate([table.cost_j for table in problem.tables])
    return np.asarray(cost_j[first[problem.table_of] + choice].sum(axis=1))
