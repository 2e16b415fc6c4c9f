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
    every = Plans.stacked(sets)
    best = every.at(undominated(every.time_s, every.cost_j))
    return replace(best, bound_j=bounds_at(frontier, np.maximum(best.time_s, frontier.t_min_s)))
