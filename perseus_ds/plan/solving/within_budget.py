"""The strategy where clocks may change only so often: timelines of clocks for every GPU."""

from __future__ import annotations

import numpy as np

from perseus_ds.errors import InfeasibleError, PlanError
from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.solver import Frontier, Plans
from perseus_ds.solver.problem import Floats
from perseus_ds.solver.timeline import Allowance, Lanes, timelines


def within_budget(problem: PlanProblem, frontier: Frontier, times_s: Floats, switching: Switching) -> Plans:
    """Make a plan for each time; parts come in the order of time.

    Raises:
        PlanError: a budget that no plan meets.
    """
    budget, options = switching.budget, problem.options.values()
    clocks = sorted({clock for o in options for clock in o.clock_mhz.tolist()}, reverse=True)
    level = {clock: number for number, clock in enumerate(clocks)}
    levels = [np.array([level[c] for c in o.clock_mhz.tolist()], np.int32) for o in options]
    levels += [np.zeros(0, np.int32) for _ in problem.fixed_s]
    lanes = Lanes(
        orders=tuple(problem.columns[rank.start : rank.stop] for rank in problem.ranks),
        level_of=tuple(levels),
        dwell_s=budget.dwell_s,
    )
    allowance = Allowance(budget.per_gpu_per_s, budget.per_node_per_s, budget.node_of(len(lanes)))
    least_part_s = np.inf if switching.split == "never" else switching.least_part_s
    try:
        return timelines(problem.activities, frontier, times_s, lanes, allowance, least_part_s=least_part_s)
    except InfeasibleError as error:
        raise PlanError(f"budget of changes: {error.message}", hint=error.hint) from error
