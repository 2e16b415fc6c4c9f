"""Checkers that trust nothing but the problem: a result that fails one of them is not shipped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perseus_ds.errors import SolverError
from perseus_ds.solver.frontier import Frontier, dual_values
from perseus_ds.solver.network import graph_of, hull_of, longest_seconds
from perseus_ds.solver.problem import Floats, Plans, Problem, blend

ROUNDING = 1e-9
"""Share by which sums of floats may differ from the same sums in another order or in whole numbers."""

BLOCK = 64
"""Breakpoints or plans that are checked together: enough to spare calls, few enough for memory."""


def check_frontier(problem: Problem, frontier: Frontier) -> None:
    """Prove every kept breakpoint: a feasible schedule and a feasible flow with the same value.

    At each: durations within their tables, no path longer than the breakpoint's time, flow not negative and
    conserved at every activity, its value the price. The bound that it proves equals the cost of the
    durations, which is complementary slackness, summed up. And prices that fall as time grows.

    Raises:
        SolverError: the first statement that does not hold.
    Cost: linear in activities times options, per snapshot.
    """
    if (np.diff(frontier.price_w) >= 0.0).any() or (frontier.price_w <= 0.0).any():
        raise SolverError("the price of time does not fall along the frontier")
    slopes_j, slack_j = frontier.price_w * np.diff(frontier.time_s), _slack_j(problem)
    if not np.allclose(-np.diff(frontier.cost_j), slopes_j, rtol=1e-6, atol=slack_j):
        raise SolverError("costs and prices of the frontier disagree")
    graph, members = graph_of(problem), problem.members()
    hulls = [hull_of(table) for table in problem.tables]  # the frontier's own may be another problem's
    for block in _blocks(len(frontier.kept)):
        kept = frontier.kept[block]
        time_s, said_j = frontier.time_s[kept], frontier.cost_j[kept]
        duration_s, cost_j = frontier.durations_of(block), np.zeros(len(kept))
        for number, (hull, where) in enumerate(zip(hulls, members, strict=True)):
            own_s, slack_s = duration_s[:, where], ROUNDING * hull.duration_s[-1]
            if ((own_s < hull.duration_s[0] - slack_s) | (own_s > hull.duration_s[-1] + slack_s)).any():
                raise SolverError(f"a duration at breakpoints from {kept[0]} on is outside table {number}")
            cost_j += hull.cost_at(own_s).sum(axis=1)
        path_s = longest_seconds(problem, graph, duration_s)
        for row in _rows(path_s > time_s * (1.0 + ROUNDING)):
            raise SolverError(f"a path takes {path_s[row]:.9g} s at the breakpoint {time_s[row]:.9g} s")
        for row in _rows(np.abs(cost_j - said_j) > slack_j):
            raise SolverError(f"breakpoint {kept[row]} costs {cost_j[row]:.9g}, stated as {said_j[row]:.9g}")
        _check_flows(problem, frontier, block, slack_j)


def _check_flows(problem: Problem, frontier: Frontier, block: range, slack_j: float) -> None:
    """See that each flow is one, and that it proves what its breakpoint costs."""
    kept = frontier.kept[block]
    through_w, across_w = frontier.activity_flow(block), frontier.precedence_flow(block)
    for row in _rows((through_w < 0.0).any(axis=1) | (across_w < 0.0).any(axis=1)):
        raise SolverError(f"a flow at breakpoint {kept[row]} is negative")
    first = np.arange(len(kept))[:, None] * len(problem)
    for side in (problem.before, problem.after):  # ends of the graph are free
        moved_w = np.bincount((first + side).ravel(), across_w.ravel(), through_w.size)
        off_w = np.abs(moved_w.reshape(through_w.shape) - through_w)[:, np.unique(side)]
        for row in _rows((off_w > ROUNDING * through_w.sum(axis=1, keepdims=True)).any(axis=1)):
            raise SolverError(f"the flow at breakpoint {kept[row]} is not conserved")
    base_j, flow_w = dual_values(problem, through_w, across_w)
    priced = np.flatnonzero(kept < len(frontier.price_w))
    _same("flow at breakpoint", kept[priced], flow_w[priced], frontier.price_w[kept[priced]])
    time_s, said_j = frontier.time_s[kept], frontier.cost_j[kept]
    proved_j = base_j - flow_w * time_s
    for row in _rows(np.abs(proved_j - said_j) > slack_j + ROUNDING * flow_w * time_s):
        raise SolverError(
            f"breakpoint {kept[row]} costs {said_j[row]:.9g}, its flow proves {proved_j[row]:.9g}"
        )


def check_plans(problem: Problem, plans: Plans, *, frontier: Frontier | None = None) -> None:
    """Recompute every plan's longest path and cost from the option tables; prove its bound.

    Raises:
        SolverError: the first plan that is not what it states.
    Cost: linear in activities and precedences, per plan.
    """
    graph, slack_j = graph_of(problem), _slack_j(problem)
    sizes = np.array([len(table) for table in problem.tables])[problem.table_of]
    for block in _blocks(len(plans)):
        some = plans.at(np.array(block, np.int32))
        first, last = np.minimum(some.choice, some.other), np.maximum(some.choice, some.other)
        for row in _rows(~((first >= 0) & (last < sizes)).all(axis=1)):
            raise SolverError(f"plan {block[row]} names an option that its table has not")
        for row in _rows(~((some.share > 0.0) & (some.share <= 1.0)).all(axis=1)):
            raise SolverError(f"plan {block[row]} has a share of work outside (0, 1]")
        duration_s, cost_j = blend(problem, some.choice, some.other, some.share)
        _same("longest path of plan", block, longest_seconds(problem, graph, duration_s), some.time_s)
        spent_j, said_j = cost_j.sum(axis=1), some.cost_j
        for row in _rows(~(np.abs(spent_j - said_j) <= slack_j)):
            raise SolverError(f"plan {block[row]} costs {spent_j[row]:.9g}, stated as {said_j[row]:.9g}")
        for row in _rows(~(some.bound_j <= spent_j + slack_j)):
            raise SolverError(f"plan {block[row]} costs {spent_j[row]:.9g}, less than its bound")
        if frontier is not None:
            proved_j = frontier.bounds_at(some.time_s, problem=problem)
            for row in _rows(~(some.bound_j <= proved_j + slack_j)):
                raise SolverError(f"the bound of plan {block[row]} is above what the flow proves")


def _blocks(count: int) -> list[range]:
    return [range(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)]


def _rows(bad: ArrayLike) -> list[int]:
    return np.flatnonzero(bad).tolist()


def _same(what: str, numbers: Any, found: Floats, said: Floats) -> None:  # noqa: ANN401  # vector or range
    largest = np.maximum(np.abs(found), np.abs(said))
    for row in _rows(~(np.abs(found - said) <= ROUNDING * largest)):
        raise SolverError(f"{what} {numbers[row]} is {found[row]:.9g}, stated as {said[row]:.9g}")


def _slack_j(problem: Problem) -> float:
    """Return by how much sums of costs may be off: a share of all the largest ones, in size."""
    largest_j = np.array([np.abs(table.cost_j).max() for table in problem.tables])
    return ROUNDING * float(largest_j[problem.table_of].sum())
