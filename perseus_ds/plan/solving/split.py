"""The strategy where clocks may change freely: split computations between two options."""

from __future__ import annotations

from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.solver import Frontier, Plans
from perseus_ds.solver import split as split_at
from perseus_ds.solver.problem import Floats


def split(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:
    """Make a plan for each time; both parts of what is split are long enough for a change of clock."""
    return split_at(problem.activities, frontier, times_s, least_part_s=switching.least_part_s)
