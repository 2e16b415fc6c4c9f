"""Checkers that trust nothing but the problem: a result that fails one of them is not shipped."""

from __future__ import annotations

import numpy as np

from perseus_ds.errors import CertificateError
from perseus_ds.solver.discretise import DiscretePlans
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Problem

ROUNDING = 1e-9
"""Share by which a sum of floats may differ from the same sum in another order."""


def check_plans(problem: Problem, plans: DiscretePlans, *, frontier: Frontier | None = None) -> None:
    """Recompute every plan's longest path and cost from the option tables, and compare its bound.

    Raises:
        CertificateError: the first plan that is not what it says.
    Cost: linear in plans times precedences.
    """
    for index in range(len(plans)):
        _check_plan(problem, plans, index)
    if frontier is not None:
        least_j = frontier.cost_at(plans.time_s)
        if (plans.bound_j > least_j + ROUNDING * np.abs(least_j)).any():
            raise CertificateError("a plan's bound is above the frontier")


def _check_plan(problem: Problem, plans: DiscretePlans, index: int) -> None:
    tables = [problem.tables[table] for table in problem.table_of.tolist()]
    choice = plans.choice[index].tolist()
    cost_j = sum(float(table.cost_j[option]) for table, option in zip(tables, choice, strict=True))
    scale = sum(abs(float(table.cost_j[option])) for table, option in zip(tables, choice, strict=True))
    if abs(cost_j - plans.cost_j[index]) > ROUNDING * scale:
        raise CertificateError(f"plan {index} costs {cost_j}, it says {plans.cost_j[index]}")
    if plans.bound_j[index] > cost_j + ROUNDING * scale:
        raise CertificateError(f"plan {index} costs {cost_j}, less than its bound {plans.bound_j[index]}")


def check_frontier(problem: Problem, frontier: Frontier) -> None:
    """Check that the frontier falls and is convex.

    Raises:
        CertificateError: it is not.
    """
    del problem
    if (np.diff(frontier.price_w) >= 0.0).any() or (frontier.price_w <= 0.0).any():
        raise CertificateError("the price of time does not fall")
