"""Which iteration times are worth a plan: close enough that falling between two costs next to nothing."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats, Problem

STEP = 0.0008
"""Share of the total that the least cost may fall from one kept time to the next."""


def plan_times(
    problem: Problem, frontier: Frontier, *, base_power_w: float = 0.0, step: float = STEP
) -> Floats:
    """Choose times from T_min to the frontier's end, time ascending.

    A look-up by a time between two gets the plan of the faster: it loses at most ``step`` of the total,
    which is the cost plus ``base_power_w`` over the iteration time.

    Cost: linear in the times chosen.
    """
    del problem
    falling_s, falling_j = frontier.time_s[::-1], frontier.cost_j[::-1]  # np.interp wants a rising abscissa
    times_s = [frontier.t_min_s]
    while times_s[-1] < frontier.time_s[-1]:
        cost_j = float(frontier.cost_at(times_s[-1]))
        allowed_j = step * abs(cost_j + base_power_w * times_s[-1])
        next_s = float(np.interp(cost_j - allowed_j, falling_j, falling_s))
        times_s.append(max(next_s, float(np.nextafter(times_s[-1], np.inf))))
    return np.array(times_s)
