"""The strategy where every computation runs at one option: a clock, or a timeline of its kernels."""

from __future__ import annotations

from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.solver import Frontier, Plans, discretise, worth_keeping
from perseus_ds.solver.problem import Floats


def whole(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:  # noqa: ARG001
    """Make a plan for each time, and keep those that are worth it."""
    plans = discretise(problem.activities, frontier, times_s)
    return worth_keeping(plans, base_power_w=problem.total_w)
