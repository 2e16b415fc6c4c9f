"""The best of several sets of plans for one problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.plans import Plans, undominated


def best_of(frontier: Frontier, *sets: Plans) -> Plans:
    """Keep of all the plans those that no other beats, with the bounds that the frontier proves.

    The sets may come from problems with fewer options, as long as those that they name stand first in
    the tables of the frontier's problem.
    """
    choice, other, share = (
        np.concatenate([getattr(plans, name) for plans in sets]) for name in ("choice", "other", "share")
    )
    time_s, cost_j = (
        np.concatenate([getattr(plans, name) for plans in sets]) for name in ("time_s", "cost_j")
    )
    every = Plans(time_s, cost_j, np.zeros(len(time_s)), choice, other, share)
    best = every.at(undominated(time_s, cost_j))
    return replace(best, bound_j=bounds_at(frontier, np.maximum(best.time_s, frontier.t_min_s)))
