"""Which iteration times are worth a plan, and which plans are worth keeping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.plans import Plans, undominated
from perseus_ds.solver.problem import Floats, Problem

STEP = 0.0005
"""Share of the total that the least cost may fall from one tried time to the next."""
REACH = 0.001
"""Share of the total that the bound may fall from one kept plan to the next."""


def plan_times(
    problem: Problem, frontier: Frontier, *, base_power_w: float = 0.0, step: float = STEP
) -> Floats:
    """Choose times from T_min to the frontier's end, time ascending, corners of the frontier where near.

    A look-up by a time between two gets the plan of the faster. It loses at most ``step`` of the total, which
    is the cost plus ``base_power_w`` over the iteration time.

    Cost: linear in the times chosen.
    """
    del problem
    total_j = float(np.abs(frontier.cost_j + base_power_w * frontier.time_s).min())
    drop_j = float(frontier.cost_j[0] - frontier.cost_j[-1])
    most = len(frontier.time_s) if total_j <= 0.0 else int(np.ceil(drop_j / (step * total_j)))
    count = max(2, min(most + 1, MOST))
    levels_j = np.linspace(frontier.cost_j[0], frontier.cost_j[-1], count)
    even_s = np.interp(levels_j, frontier.cost_j[::-1], frontier.time_s[::-1])
    return np.unique(_snapped(frontier, even_s))


MOST = 2000
"""Times that are tried at most: a frontier that falls to almost nothing has no natural number of steps."""


def _snapped(frontier: Frontier, even_s: Floats) -> Floats:
    """Move every time back to the last corner since the time before it: there most real options fit."""
    corner_s = frontier.time_s[np.searchsorted(frontier.time_s, even_s, side="right") - 1]
    since_s = np.concatenate((even_s[:1], even_s[:-1]))
    return np.where((corner_s > since_s) | (corner_s == even_s), corner_s, even_s)


def worth_keeping(plans: Plans, *, base_power_w: float = 0.0) -> Plans:
    """Drop plans far from their bound while a faster one stays near enough.

    The first and the last stay. From one kept plan to the next the bound falls by at most `REACH` of the
    total, as far as the plans given allow it.

    Cost: quadratic in plans, in vectors.
    """
    total_j = np.abs(plans.bound_j + base_power_w * plans.time_s)
    gap_j = plans.cost_j - plans.bound_j
    kept = np.ones(len(plans), dtype=np.bool_)
    for worst in np.argsort(-gap_j, kind="stable"):
        before, after = np.flatnonzero(kept[:worst]), np.flatnonzero(kept[worst + 1 :]) + worst + 1
        if not len(before) or not len(after):
            continue
        fall_j = plans.bound_j[before[-1]] - plans.bound_j[after[0]]
        kept[worst] = fall_j > REACH * total_j[worst]
    return plans.at(np.flatnonzero(kept).astype(np.int32))


def best_of(frontier: Frontier, *sets: Plans) -> Plans:
    """Keep of all the plans those that no other beats, with the bounds that the frontier proves.

    The sets may come from problems with fewer options, as long as those that they name stand first in
    the tables of the frontier's problem.
    """
    every = Plans.stacked(sets)
    best = every.at(undominated(every.time_s, every.cost_j))
    return replace(best, bound_j=bounds_at(frontier, np.maximum(best.time_s, frontier.t_min_s)))
