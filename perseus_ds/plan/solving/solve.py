"""Which kind of plans is asked for: split anywhere, whole computations, or timelines within a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError, PlanError
from perseus_ds.plan.options import Options
from perseus_ds.plan.solving.part_order import slow_first
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.solving.translation import Translation
from perseus_ds.plan.splits import Splits
from perseus_ds.solver import (
    REACH,
    STEP,
    Frontier,
    Plans,
    Problem,
    best_of,
    discretise,
    plan_times,
    solve_frontier,
    split,
    worth_keeping,
)
from perseus_ds.solver.timeline import Allowance, Lanes, timelines

Matrix = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Plans as the solver numbers them; ``ordered``: what ``choice`` names comes before ``other`` in time."""

    frontier: Frontier
    plans: Plans
    ordered: bool


def solve(
    translation: Translation,
    switching: Switching,
    *,
    base_power_w: float,
    fastest_only: bool = False,
    also_s: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> Solved:
    """Solve the relaxed problem, and make plans of it that change clocks no more often than they may.

    ``fastest_only``: of the whole frontier the plan for its shortest time alone. ``also_s`` is a time that
    gets a plan of its own where it lies on the frontier.

    Raises:
        PlanError: a budget that no plan meets, or changes that take longer than an iteration.
        SolverError: the problem cannot be solved as stated.
    """
    problem = translation.problem
    frontier = solve_frontier(problem, progress=progress)
    _refuse_slower_than(frontier.t_min_s, switching)
    in_parts = switching.budget.limits or switching.split == "auto"
    step = REACH if in_parts else STEP
    times_s = np.array([frontier.t_min_s])
    if not fastest_only:
        times_s = plan_times(problem, frontier, base_power_w=base_power_w, step=step)
    if frontier.t_min_s * (1.0 + _ROUNDING) < also_s < frontier.t_star_s:
        times_s = np.union1d(times_s, [also_s])
    if switching.budget.limits:
        return Solved(frontier, _within_budget(translation, frontier, switching, times_s), ordered=True)
    if in_parts:
        plans = split(problem, frontier, times_s, least_part_s=switching.least_part_s)
        return Solved(frontier, plans, ordered=False)
    return Solved(frontier, _whole(problem, frontier, times_s, base_power_w), ordered=False)


_ROUNDING = 1e-9  # of sums of up to a million doubles


def _refuse_slower_than(iteration_s: float, switching: Switching) -> None:
    """Refuse changes that would not be in force before the iteration that wants them is over."""
    if switching.change.longest_s >= iteration_s and switching.budget.per_gpu_per_s != 0.0:
        raise PlanError(
            f"a change of clock takes {switching.change.longest_s:.3g} s and the fastest iteration"
            f" {iteration_s:.3g} s: no plan that changes clocks can be played",
            hint="changes_per_s 0 gives every GPU one clock",
        )


def _whole(problem: Problem, frontier: Frontier, times_s: NDArray[np.float64], base_power_w: float) -> Plans:
    """One option for every computation."""
    return worth_keeping(discretise(problem, frontier, times_s), base_power_w=base_power_w)


def with_timelines(
    translation: Translation, frontier: Frontier, without: Plans, unslowed_s: float, base_power_w: float
) -> Solved:
    """The best of plans with timelines as whole options, and of those that know clocks only."""
    unslowed = discretise(translation.problem, frontier, np.array([max(unslowed_s, frontier.t_min_s)]))
    times_s = plan_times(translation.problem, frontier, base_power_w=base_power_w)
    found = _whole(translation.problem, frontier, times_s, base_power_w)
    return Solved(frontier, best_of(frontier, without, found, unslowed), ordered=False)


def _within_budget(
    translation: Translation, frontier: Frontier, switching: Switching, times_s: NDArray[np.float64]
) -> Plans:
    """Make timelines of clocks."""
    budget, whole = switching.budget, switching.split == "never"
    clocks = sorted(
        {clock for o in translation.options.values() for clock in o.clock_mhz.tolist()}, reverse=True
    )
    level = {clock: number for number, clock in enumerate(clocks)}
    levels = [
        np.array([level[c] for c in o.clock_mhz.tolist()], np.int32) for o in translation.options.values()
    ]
    levels += [np.zeros(0, np.int32) for _ in translation.fixed_s]
    lanes = Lanes(
        orders=tuple(translation.columns[rank.start : rank.stop] for rank in translation.ranks),
        level_of=tuple(levels),
        dwell_s=budget.dwell_s,
    )
    allowance = Allowance(budget.per_gpu_per_s, budget.per_node_per_s, budget.node_of(len(lanes)))
    least_part_s = np.inf if whole else switching.least_part_s
    try:
        return timelines(translation.problem, frontier, times_s, lanes, allowance, least_part_s=least_part_s)
    except InfeasibleError as error:
        raise PlanError(f"budget of changes: {error.message}", hint=error.hint) from error


@dataclass(frozen=True, slots=True, eq=False)
class Timelines:
    """The options of every computation in running order and in the order of time.

    Shape: ``choice`` [plans, computations].
    """

    choice: NDArray[np.uint8] | NDArray[np.uint16]
    splits: Splits


def in_order(solved: Solved, translation: Translation) -> Timelines:
    """Reorder the solver's columns (nodes) into running order, computations only, and order their parts."""
    plans, columns = solved.plans, translation.columns
    first, rest, share = plans.choice[:, columns], plans.other[:, columns], plans.share[:, columns]
    if not solved.ordered:
        fast_mhz, slow_mhz = (clocks_mhz(translation, options) for options in (first, rest))
        turned = slow_first(translation.ranks, fast_mhz, slow_mhz) & (share < 1.0)
        first, rest, share = (
            np.where(turned, rest, first),
            np.where(turned, first, rest),
            np.where(turned, 1.0 - share, share),
        )
    choice, after = _narrow(first), _narrow(rest)
    return Timelines(choice, Splits.of(choice, after, share))


def clocks_mhz(translation: Translation, options: NDArray[np.int32]) -> Matrix:
    """Clocks of options of all computations.

    Shape: [plans, computations], both.
    """
    nodes = translation.dag.nodes
    own = [_begins_mhz(translation.options[nodes[c].stage, nodes[c].kind]) for c in translation.columns]
    return np.column_stack([clock[options[:, column]] for column, clock in enumerate(own)])


def _begins_mhz(options: Options) -> NDArray[np.int64]:
    """The clock that each option begins with.

    Shape: [options].
    """
    return np.array([options.segments(option)[0].clock_mhz for option in range(len(options.time_s))])


def _narrow(options: NDArray[np.int32]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    if options.max(initial=0) <= np.iinfo(np.uint8).max:
        return options.astype(np.uint8)
    return options.astype(np.uint16)
