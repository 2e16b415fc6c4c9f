"""The time-cost frontier of activities with options on a graph: exact, discretised, certified."""

from __future__ import annotations

from perseus_ds.solver.certificate import check_frontier, check_plans
from perseus_ds.solver.discretise import DiscretePlans, discretise
from perseus_ds.solver.dual import total_bounds
from perseus_ds.solver.frontier import Frontier, Result, solve_frontier
from perseus_ds.solver.grid import plan_times, worth_keeping
from perseus_ds.solver.problem import OptionTable, Problem

__all__ = [
    "DiscretePlans",
    "Frontier",
    "OptionTable",
    "Problem",
    "Result",
    "check_frontier",
    "check_plans",
    "discretise",
    "plan_times",
    "solve_frontier",
    "total_bounds",
    "worth_keeping",
]
