"""From a problem to plans: its frontier, the times worth a plan, and the strategy that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perseus_ds.errors import InfeasibleError, PlanError, SlowChangeError
from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.solver import (
    REACH,
    STEP,
    Frontier,
    Plans,
    best_of,
    discretise,
    plan_times,
    solve_frontier,
    split,
    worth_keeping,
)
from perseus_ds.solver.problem import Floats
from perseus_ds.solver.timeline import Allowance, Lanes, timelines

ONE_WAIT = 2
"""Changes that one low wait takes: within a budget it is also tried to leave as many to waits."""
_ROUNDING = 1e-9  # of sums of up to a million doubles


class Solved(NamedTuple):
    """A frontier and plans on it, as the solver numbers them."""

    frontier: Frontier
    plans: Plans


def solve(
    problem: PlanProblem,
    switching: Switching,
    *,
    also_s: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> Solved:
    """Solve the relaxed problem, and make plans of it that change clocks no more often than they may.

    ``also_s`` is a time that gets a plan of its own where it lies on the frontier.

    Raises:
        PlanError: a budget that no plan meets, or changes that take longer than an iteration.
        SolverError: the problem cannot be solved as stated.
    """
    frontier = _frontier(problem, switching, progress)
    return Solved(frontier, _planned(problem, frontier, switching, also_s))


def fastest(problem: PlanProblem, switching: Switching, *, also_s: float = 0.0) -> Plans:
    """Make the plan for the shortest time alone, and one for ``also_s`` where it lies on the frontier.

    Where no plan for the shortest time changes clocks so seldom, plans for longer times are made too. In a
    profile with errors the fastest clock of one computation need not be that of the next.

    Raises:
        PlanError, SolverError: as ``solve``.
    """
    frontier = _frontier(problem, switching, None)
    try:
        return _at(problem, frontier, switching, np.array([frontier.t_min_s]), also_s)
    except PlanError:
        return _planned(problem, frontier, switching, also_s)


def leaner(problem: PlanProblem, frontier: Frontier, switching: Switching, also_s: float) -> list[Plans]:
    """Make plans that leave as many changes to waits as waits may want; none without a budget."""
    lean = switching.budget.less(ONE_WAIT, frontier.t_min_s)
    if lean is None:
        return []
    try:
        return [_planned(problem, frontier, replace(switching, budget=lean), also_s)]
    except PlanError:  # no plan changes so seldom: waits get what is left
        return []


def with_timelines(problem: PlanProblem, without: Plans, switching: Switching, also_s: float) -> Solved:
    """Keep the best of plans with timelines as whole options, and of those that know clocks only."""
    frontier = _frontier(problem, switching, None)
    times_s = plan_times(problem.activities, frontier, base_power_w=problem.total_w)
    found = _whole(problem, frontier, times_s, switching)
    also = discretise(problem.activities, frontier, np.array([max(also_s, frontier.t_min_s)]))
    return Solved(frontier, best_of(frontier, without, found, also))


def _frontier(
    problem: PlanProblem, switching: Switching, progress: Callable[[float], None] | None
) -> Frontier:
    """Solve the relaxed problem.

    Raises:
        SlowChangeError: changes that would not be in force before the iteration that wants them is over.
    """
    frontier = solve_frontier(problem.activities, progress=progress)
    if switching.change.longest_s >= frontier.t_min_s and switching.budget.per_gpu_per_s != 0.0:
        raise SlowChangeError(
            f"a change of clock takes {switching.change.longest_s:.3g} s and the fastest iteration"
            f" {frontier.t_min_s:.3g} s: no plan that changes clocks can run",
            hint="changes_per_s 0 gives every GPU one clock",
        )
    return frontier


def _planned(problem: PlanProblem, frontier: Frontier, switching: Switching, also_s: float) -> Plans:
    step = STEP if _strategy(switching) is _whole else REACH
    times_s = plan_times(problem.activities, frontier, base_power_w=problem.total_w, step=step)
    return _at(problem, frontier, switching, times_s, also_s)


def _at(
    problem: PlanProblem, frontier: Frontier, switching: Switching, times_s: Floats, also_s: float
) -> Plans:
    if frontier.t_min_s * (1.0 + _ROUNDING) < also_s < frontier.t_star_s:
        times_s = np.union1d(times_s, [also_s])
    return _strategy(switching)(problem, frontier, times_s, switching)


def _strategy(switching: Switching) -> Callable[[PlanProblem, Frontier, Floats, Switching], Plans]:
    return _within_budget if switching.budget.limits else _freely(switching)


def _freely(switching: Switching) -> Callable[[PlanProblem, Frontier, Floats, Switching], Plans]:
    return _whole if switching.split == "never" else _split


def _split(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:
    """Where clocks may change freely: both parts of what is split are long enough for a change of clock."""
    return split(problem.activities, frontier, times_s, least_part_s=switching.least_part_s)


def _whole(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:  # noqa: ARG001
    """Where every computation runs at one option, a clock or a timeline: the plans that are worth it."""
    plans = discretise(problem.activities, frontier, times_s)
    return worth_keeping(plans, base_power_w=problem.total_w)


def _within_budget(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:
    """Where clocks may change only so often: timelines of clocks for every GPU, parts in the order of time.

    Raises:
        PlanError: a budget that no plan meets.
    """
    budget, options = switching.budget, problem.options.values()
    lower = -np.concatenate([one.clock_mhz for one in options])  # the highest clock is level 0
    levels = [np.searchsorted(np.unique(lower), -one.clock_mhz).astype(np.int32) for one in options]
    levels += [np.zeros(0, np.int32) for _ in problem.fixed_s]
    lanes = Lanes(
        orders=tuple(problem.columns[rank.start : rank.stop] for rank in problem.ranks),
        level_of=tuple(levels),
    )
    allowance = Allowance(budget.per_gpu_per_s, budget.per_node_per_s, budget.node_of(len(lanes)))
    most = 2 * np.array([len(order) for order in lanes.orders])  # into a computation, and once within it
    if allowance.within(frontier.t_min_s, len(lanes)).allows(most):
        return _freely(switching)(problem, frontier, times_s, switching)
    least_part_s = np.inf if switching.split == "never" else switching.least_part_s
    try:
        return timelines(problem.activities, frontier, times_s, lanes, allowance, least_part_s=least_part_s)
    except InfeasibleError as error:
        raise PlanError(f"budget of changes: {error.message}", hint=error.hint) from error
