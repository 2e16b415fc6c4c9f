"""Which iteration times are worth a plan: near enough to each other, and where real options fit best."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.choices import choices_of
from perseus_ds.solver.discretise import rounded
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats, Indices, Problem

STEP = 0.0008
"""Share of the total that the least cost may fall from one kept time to the next."""
FINE = 6
"""Times that are tried for every one that is kept."""


def plan_times(
    problem: Problem, frontier: Frontier, *, base_power_w: float = 0.0, step: float = STEP
) -> Floats:
    """Choose times from T_min to the frontier's end, time ascending.

    A look-up by a time between two gets the plan of the faster: it loses at most ``step`` of the total,
    which is the cost plus ``base_power_w`` over the iteration time. Within that reach the time is kept
    whose plan, simply rounded, comes nearest to the relaxed cost: the frontier's corners mostly.

    Cost: linear in activities per time tried.
    """
    del problem
    tried_s = _tried(frontier, base_power_w, step / FINE)
    total_j = np.abs(frontier.cost_at(tried_s) + base_power_w * tried_s)
    loss = _losses(frontier, tried_s) / total_j
    least_j = frontier.cost_at(tried_s)
    kept = [0]
    while kept[-1] < len(tried_s) - 1:
        fallen = (least_j[kept[-1]] - least_j) / total_j[kept[-1]]
        reach = np.flatnonzero((fallen > step / 2) & (fallen <= step))
        last = len(tried_s) - 1
        kept.append(int(reach[np.argmin(loss[reach])]) if len(reach) else _next(fallen, kept[-1], step, last))
    return tried_s[kept]


def _next(fallen: Floats, now: int, step: float, last: int) -> int:
    """The farthest time within reach, at least the one that follows."""
    return min(max(now + 1, int(np.searchsorted(fallen, step, side="right")) - 1), last)


def _tried(frontier: Frontier, base_power_w: float, fine: float) -> Floats:
    """Every corner that stands out, and evenly falling costs where corners are rare."""
    falling_s, falling_j = frontier.time_s[::-1], frontier.cost_j[::-1]
    total_j = np.abs(frontier.cost_j + base_power_w * frontier.time_s)
    drop_j = float(frontier.cost_j[0] - frontier.cost_j[-1])
    count = int(np.ceil(drop_j / (fine * float(total_j.max())))) + 1 if drop_j > 0.0 else 1
    even_s = np.interp(np.linspace(frontier.cost_j[-1], frontier.cost_j[0], count), falling_j, falling_s)
    return np.unique(np.concatenate((frontier.time_s[_corners(frontier, count)], even_s)))


def _corners(frontier: Frontier, count: int) -> Indices:
    """Both ends and, where there are too many corners, evenly many of the others."""
    return np.unique(np.linspace(0, len(frontier) - 1, min(len(frontier), count)).astype(np.int32))


def _losses(frontier: Frontier, times_s: Floats) -> Floats:
    choices = choices_of(frontier.whole)
    cost_j = [choices.cost[rounded(choices, frontier, float(time_s))[1]].sum() for time_s in times_s]
    return np.array(cost_j) - frontier.cost_at(times_s)
