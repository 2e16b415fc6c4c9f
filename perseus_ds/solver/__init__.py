"""The time-cost frontier of activities with options on a graph: exact, discretised, certified."""

from __future__ import annotations

from perseus_ds.solver.check import check_frontier, check_plans
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import (
    REACH,
    STEP,
    Frontier,
    best_of,
    plan_times,
    solve_frontier,
    total_bounds,
    worth_keeping,
)
from perseus_ds.solver.problem import OptionTable, Plans, Problem, blended, undominated
from perseus_ds.solver.splits import GRAIN, split

__all__ = [
    "GRAIN",
    "REACH",
    "STEP",
    "Frontier",
    "OptionTable",
    "Plans",
    "Problem",
    "best_of",
    "blended",
    "check_frontier",
    "check_plans",
    "discretise",
    "plan_times",
    "solve_frontier",
    "split",
    "total_bounds",
    "undominated",
    "worth_keeping",
]
