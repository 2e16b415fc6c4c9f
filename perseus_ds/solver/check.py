"""Checkers that trust nothing but the problem: a result that fails one of them is not shipped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError
from perseus_ds.solver.frontier import Frontier, activity_flow, dual_values, members_of, precedence_flow
from perseus_ds.solver.network import graph_of, hull_of, longest_seconds
from perseus_ds.solver.problem import Floats, Plans, Problem, blended

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
    slopes_j = frontier.price_w * np.diff(frontier.time_s)
    if not np.allclose(-np.diff(frontier.cost_j), slopes_j, rtol=1e-6, atol=ROUNDING * _scale(problem)):
        raise SolverError("costs and prices of the frontier disagree")
    for block in _blocks(len(frontier.kept)):
        _check_schedules(problem, frontier, block)
        _check_flows(problem, frontier, block)


def check_plans(problem: Problem, plans: Plans, *, frontier: Frontier | None = None) -> None:
    """Recompute every plan's longest path and cost from the option tables; prove its bound.

    Raises:
        SolverError: the first plan that is not what it states.
    Cost: linear in activities and precedences, per plan.
    """
    graph, members, slack_j = graph_of(problem), members_of(problem), ROUNDING * _scale(problem)
    sizes = np.array([len(table) for table in problem.tables])[problem.table_of]
    for block in _blocks(len(plans)):
        choice, other, share = plans.choice[block], plans.other[block], plans.share[block]
        is_known = (np.minimum(choice, other) >= 0) & (np.maximum(choice, other) < sizes)
        _refuse(block, is_known, "names an option that its table has not")
        _refuse(block, (share > 0.0) & (share <= 1.0), "has a share of work outside (0, 1]")
        duration_s, cost_j = blended(problem, choice, other, share)
        paths_s, costs_j = longest_seconds(problem, graph, duration_s), cost_j.sum(axis=1)
        for index, path_s, spent_j in zip(block, paths_s.tolist(), costs_j.tolist(), strict=True):
            time_s, bound_j = float(plans.time_s[index]), float(plans.bound_j[index])
            _same(f"longest path of plan {index}", path_s, time_s)
            if not abs(spent_j - plans.cost_j[index]) <= slack_j:
                raise SolverError(f"plan {index} costs {spent_j:.9g}, stated as {plans.cost_j[index]:.9g}")
            if not bound_j <= spent_j + slack_j:
                raise SolverError(f"plan {index} costs {spent_j:.9g}, less than its bound")
            if frontier is not None:
                around = [*frontier.bracket(max(time_s, frontier.t_min_s))[:2]]
                flows_w = activity_flow(frontier, around), precedence_flow(frontier, around)
                bases_j, prices_w = dual_values(problem, members, *flows_w)
                proved_j = float((bases_j - prices_w * time_s).max())
                if not bound_j <= proved_j + slack_j:
                    raise SolverError(f"the bound of plan {index} is above what the flow proves")


def _blocks(count: int) -> list[range]:
    return [range(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)]


def _refuse(block: range, good: NDArray[np.bool_], what: str) -> None:
    if not good.all():
        raise SolverError(f"plan {block[int(good.all(axis=1).argmin())]} {what}")


def _check_schedules(problem: Problem, frontier: Frontier, snapshots: Sequence[int]) -> None:
    """Sum the costs at each breakpoint, and follow the longest path."""
    kept = frontier.kept[snapshots]
    duration_s = np.array([frontier.durations_at(float(time_s)) for time_s in frontier.time_s[kept]])
    cost_j = np.zeros(len(kept))
    for number, (table, where) in enumerate(zip(problem.tables, members_of(problem), strict=True)):
        hull = hull_of(table)  # the problem's own: those that come with a frontier may be another one's
        own_s, slack_s = duration_s[:, where], ROUNDING * hull.duration_s[-1]
        if ((own_s < hull.duration_s[0] - slack_s) | (own_s > hull.duration_s[-1] + slack_s)).any():
            raise SolverError(f"a duration at breakpoints from {kept[0]} on is outside table {number}")
        cost_j += hull.cost_at(own_s).sum(axis=1)
    paths_s = longest_seconds(problem, graph_of(problem), duration_s)
    for at, path_s, found_j in zip(kept.tolist(), paths_s.tolist(), cost_j.tolist(), strict=True):
        if path_s > frontier.time_s[at] * (1.0 + ROUNDING):
            raise SolverError(f"a path takes {path_s:.9g} s at the breakpoint {frontier.time_s[at]:.9g} s")
        if abs(found_j - frontier.cost_j[at]) > ROUNDING * _scale(problem):
            raise SolverError(f"breakpoint {at} costs {found_j:.9g}, stated as {frontier.cost_j[at]:.9g}")


def _check_flows(problem: Problem, frontier: Frontier, snapshots: Sequence[int]) -> None:
    """See that each flow is one, and that it proves what its breakpoint costs."""
    through_w = np.array([activity_flow(frontier, snapshot) for snapshot in snapshots])
    across_w = np.array([precedence_flow(frontier, snapshot) for snapshot in snapshots])
    bases_j, flows_w = dual_values(problem, members_of(problem), through_w, across_w)
    for row, at in enumerate(frontier.kept[snapshots].tolist()):
        if (through_w[row] < 0.0).any() or (across_w[row] < 0.0).any():
            raise SolverError(f"a flow at breakpoint {at} is negative")
        _check_conserved(problem, through_w[row], across_w[row], at)
        flow_w, time_s, said_j = float(flows_w[row]), float(frontier.time_s[at]), frontier.cost_j[at]
        if at < len(frontier.price_w):
            _same(f"flow at breakpoint {at}", flow_w, float(frontier.price_w[at]))
        proved_j = float(bases_j[row]) - flow_w * time_s
        if abs(proved_j - said_j) > ROUNDING * (_scale(problem) + flow_w * time_s):
            raise SolverError(f"breakpoint {at} costs {said_j:.9g}, its flow proves {proved_j:.9g}")


def _check_conserved(problem: Problem, through_w: Floats, across_w: Floats, at: int) -> None:
    """Check that flow into and out of every activity is its own; ends of the graph are free."""
    for side in (problem.before, problem.after):
        moved_w = np.bincount(side, weights=across_w, minlength=len(problem))
        inner = np.bincount(side, minlength=len(problem)) > 0
        if (np.abs(moved_w - through_w)[inner] > ROUNDING * float(through_w.sum())).any():
            raise SolverError(f"the flow at breakpoint {at} is not conserved")


def _same(what: str, found: float, said: float) -> None:
    if not abs(found - said) <= ROUNDING * max(abs(found), abs(said)):
        raise SolverError(f"{what} is {found:.9g}, stated as {said:.9g}")


def _scale(problem: Problem) -> float:
    """Sum of the largest costs, in size: what rounding is measured by."""
    largest_j = np.array([np.abs(table.cost_j).max() for table in problem.tables])
    return float(largest_j[problem.table_of].sum())
