"""Checkers that trust nothing but the problem: a result that fails one of them is not shipped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import CertificateError
from perseus_ds.solver.discretise import DiscretePlans
from perseus_ds.solver.dual import activity_flow, dual_value, precedence_flow
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.paths import Graph, graph_of, longest_seconds
from perseus_ds.solver.problem import Floats, Problem

ROUNDING = 1e-9
"""Share by which sums of floats may differ from the same sums in another order or in whole numbers."""


def check_frontier(problem: Problem, frontier: Frontier) -> None:
    """Prove every kept breakpoint: a feasible schedule and a feasible flow with the same value.

    At each: durations within their tables, no path longer than the breakpoint's time, flow not negative
    and conserved at every activity, its value the price, and the bound that it proves equal to the cost
    of the durations (which is complementary slackness, summed up). And prices that fall as time grows.

    Raises:
        CertificateError: the first statement that does not hold.
    Cost: linear in activities times options, per snapshot.
    """
    if (np.diff(frontier.price_w) >= 0.0).any() or (frontier.price_w <= 0.0).any():
        raise CertificateError("the price of time does not fall along the frontier")
    slopes_j = frontier.price_w * np.diff(frontier.time_s)
    if not np.allclose(-np.diff(frontier.cost_j), slopes_j, rtol=1e-6, atol=ROUNDING * _scale(problem)):
        raise CertificateError("costs and prices of the frontier disagree")
    graph = graph_of(problem)
    members = [np.flatnonzero(problem.table_of == number) for number in range(len(problem.tables))]
    for snapshot in range(len(frontier.kept)):
        _check_schedule(problem, graph, members, frontier, snapshot)
        _check_flow(problem, frontier, snapshot)


def check_plans(problem: Problem, plans: DiscretePlans, *, frontier: Frontier | None = None) -> None:
    """Recompute every plan's longest path and cost from the option tables; prove its bound.

    Raises:
        CertificateError: the first plan that is not what it says.
    Cost: linear in activities and precedences, per plan.
    """
    scale_j = _scale(problem)
    first = np.concatenate(([0], np.cumsum([len(table) for table in problem.tables])))
    sizes = np.diff(first)[problem.table_of]
    duration_s = np.concatenate([table.duration_s for table in problem.tables])
    cost_j = np.concatenate([table.cost_j for table in problem.tables])
    graph = graph_of(problem)
    for index in range(len(plans)):
        choice = plans.choice[index]
        if (choice < 0).any() or (choice >= sizes).any():
            raise CertificateError(f"plan {index} names an option that its table has not")
        where = first[problem.table_of] + choice
        _same(
            f"longest path of plan {index}",
            longest_seconds(problem, graph, duration_s[where]),
            plans.time_s[index],
        )
        spent_j = float(cost_j[where].sum())
        if abs(spent_j - plans.cost_j[index]) > ROUNDING * scale_j:
            raise CertificateError(f"plan {index} costs {spent_j:.9g}, it says {plans.cost_j[index]:.9g}")
        if plans.bound_j[index] > spent_j + ROUNDING * scale_j:
            raise CertificateError(f"plan {index} costs {spent_j:.9g}, less than its bound")
    if frontier is not None:
        _check_bounds(problem, plans, frontier, scale_j)


def _check_bounds(problem: Problem, plans: DiscretePlans, frontier: Frontier, scale_j: float) -> None:
    for index, time_s in enumerate(plans.time_s.tolist()):
        proved_j = -np.inf
        for snapshot in frontier.bracket(time_s)[:2]:
            through_w, across_w = activity_flow(frontier, snapshot), precedence_flow(frontier, snapshot)
            base_j, price_w = dual_value(problem, through_w, across_w)
            proved_j = max(proved_j, base_j - price_w * time_s)
        if plans.bound_j[index] > proved_j + ROUNDING * scale_j:
            raise CertificateError(f"the bound of plan {index} is above what the flow proves: {proved_j:.9g}")


def _check_schedule(
    problem: Problem, graph: Graph, members: Sequence[NDArray[np.intp]], frontier: Frontier, snapshot: int
) -> None:
    """Follow the longest path and sum the costs; ``members`` are the activities of every table."""
    at = int(frontier.kept[snapshot])
    duration_s = frontier.durations_at(float(frontier.time_s[at]))
    path_s = longest_seconds(problem, graph, duration_s)
    if path_s > frontier.time_s[at] * (1.0 + ROUNDING):
        raise CertificateError(f"a path takes {path_s:.9g} s at the breakpoint {frontier.time_s[at]:.9g} s")
    cost_j = 0.0
    for number, hull in enumerate(frontier.whole.hulls):
        own_s = duration_s[members[number]]
        slack_s = ROUNDING * hull.duration_s[-1]
        if len(own_s) and (
            own_s.min() < hull.duration_s[0] - slack_s or own_s.max() > hull.duration_s[-1] + slack_s
        ):
            raise CertificateError(f"a duration at breakpoint {at} is outside table {number}")
        cost_j += float(hull.cost_at(own_s).sum())
    if abs(cost_j - frontier.cost_j[at]) > ROUNDING * _scale(problem):
        raise CertificateError(f"breakpoint {at} costs {cost_j:.9g}, it says {frontier.cost_j[at]:.9g}")


def _check_flow(problem: Problem, frontier: Frontier, snapshot: int) -> None:
    at = int(frontier.kept[snapshot])
    through_w, across_w = activity_flow(frontier, snapshot), precedence_flow(frontier, snapshot)
    if (through_w < 0.0).any() or (across_w < 0.0).any():
        raise CertificateError(f"a flow at breakpoint {at} is negative")
    price_w = float(frontier.price_w[at]) if at < len(frontier.price_w) else None
    _check_conserved(problem, through_w, across_w, at)
    base_j, flow_w = dual_value(problem, through_w, across_w)
    if price_w is not None:
        _same(f"flow at breakpoint {at}", flow_w, price_w)
    proved_j = base_j - flow_w * float(frontier.time_s[at])
    if abs(proved_j - frontier.cost_j[at]) > ROUNDING * (_scale(problem) + flow_w * frontier.time_s[at]):
        raise CertificateError(
            f"breakpoint {at} costs {frontier.cost_j[at]:.9g}, its flow proves {proved_j:.9g}"
        )


def _check_conserved(problem: Problem, through_w: Floats, across_w: Floats, at: int) -> None:
    """What enters and what leaves every activity is what goes through it; ends of the graph are free."""
    for side in (problem.before, problem.after):
        moved_w = np.bincount(side, weights=across_w, minlength=len(problem))
        inner = np.bincount(side, minlength=len(problem)) > 0
        if (np.abs(moved_w - through_w)[inner] > ROUNDING * float(through_w.sum())).any():
            raise CertificateError(f"the flow at breakpoint {at} is not conserved")


def _same(what: str, found: float, said: float) -> None:
    if abs(found - said) > ROUNDING * max(abs(found), abs(said)):
        raise CertificateError(f"{what} is {found:.9g}, it says {said:.9g}")


def _scale(problem: Problem) -> float:
    """Sum of the largest costs, in size: what rounding is measured by."""
    largest_j = np.array([np.abs(table.cost_j).max() for table in problem.tables])
    return float(largest_j[problem.table_of].sum())
