"""The time-cost frontier of activities with options on a graph: exact, discretised, certified."""

from __future__ import annotations

from perseus_ds.solver.beam.discretise import discretise
from perseus_ds.solver.certificate import check_frontier, check_plans
from perseus_ds.solver.dual import total_bounds
from perseus_ds.solver.grid import REACH, STEP, best_of, plan_times, worth_keeping
from perseus_ds.solver.parametric.frontier import Frontier, solve_frontier
from perseus_ds.solver.plans import Plans, blended, undominated
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.splitting.split import GRAIN, split

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
