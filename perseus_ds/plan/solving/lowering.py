"""Low clocks in the waits of solved plans: which are worth their changes, and what all others take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.budget import MANY, ChangeBudget, changes_of
from perseus_ds.plan.idle import BEGINNING, Idle, idles
from perseus_ds.plan.solving.order import clocks_mhz
from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.waits import WaitClock, Waits, low_waits
from perseus_ds.solver import Plans, blended, undominated


def wait_clock_of(
    blocking_w: Mapping[int, float], blocking_power_w: float, switching: Switching
) -> WaitClock | None:
    """The clock at which waiting takes least, the highest of several; None where none takes less.

    ``blocking_w`` is the power of waiting by clock.
    """
    if switching.waits == "never" or not blocking_w:
        return None
    power_w, lower_mhz = min((power_w, -clock_mhz) for clock_mhz, power_w in blocking_w.items())
    if power_w >= blocking_power_w:
        return None
    return WaitClock(-lower_mhz, power_w, blocking_power_w, switching.change)


def lowered(
    problem: PlanProblem, plans: Plans, clock: WaitClock, budget: ChangeBudget
) -> tuple[Plans, Waits]:
    """Lower the clock in every wait that is long enough; add what all other waits take beyond that.

    The problem was solved as if every wait took the least: what is added is what the bound does not see.
    With a budget the longest waits go down, as far as its changes reach.
    """
    columns = problem.columns
    duration_s, _ = blended(problem.activities, plans.choice, plans.other, plans.share)
    start_s = problem.dag.starts_of_many(duration_s.T, problem.fixed_s)
    end_s = start_s[columns] + duration_s.T[columns]
    idle_times = idles(problem.schedule, problem.fixed_s)
    waits = low_waits(
        idle_times, problem.ranks, start_s=start_s[columns], end_s=end_s, time_s=plans.time_s, clock=clock
    )
    if budget.limits:
        waits = _affordable(problem, plans, waits, idle_times, budget)
    high_s = problem.schedule.ranks * plans.time_s - _busy_s(problem, plans) - waits.total_s(len(plans))
    cost_j = plans.cost_j + (clock.high_power_w - clock.power_w) * high_s
    kept = undominated(plans.time_s, cost_j)
    return replace(plans, cost_j=cost_j).at(kept), waits.of(kept)


def cheapest(found: Sequence[tuple[Plans, Waits]]) -> tuple[Plans, Waits]:
    """Keep of several sets of plans those that no other beats, with their waits."""
    if len(found) == 1:
        return found[0]
    every = Plans.stacked([plans for plans, _ in found])
    first = np.cumsum([0, *(len(plans) for plans, _ in found[:-1])])
    kept = undominated(every.time_s, every.cost_j)
    number = np.full(len(every), -1, np.int32)
    number[kept] = np.arange(len(kept))
    plan = number[np.concatenate([waits.plan + at for (_, waits), at in zip(found, first, strict=True)])]
    column, low_s = (
        np.concatenate([getattr(waits, name) for _, waits in found]) for name in ("column", "low_s")
    )
    order = np.lexsort((plan, column))
    order = order[plan[order] >= 0]
    return every.at(kept), Waits(plan[order], column[order], low_s[order])


def _busy_s(problem: PlanProblem, plans: Plans) -> NDArray[np.float64]:
    """What all computations of each plan really last, without reserve."""
    nodes, busy_s = problem.dag.nodes, np.zeros(len(plans))
    for column in problem.columns.tolist():
        time_s = problem.options[nodes[column].stage, nodes[column].kind].time_s
        share = plans.share[:, column]
        busy_s += share * time_s[plans.choice[:, column]] + (1.0 - share) * time_s[plans.other[:, column]]
    return busy_s


def _affordable(
    problem: PlanProblem, plans: Plans, waits: Waits, idle_times: Sequence[Idle], budget: ChangeBudget
) -> Waits:
    """Keep the longest waits of every plan while GPU and node have changes left for going down and up."""
    first, last = (
        clocks_mhz(problem, options[:, problem.columns]) for options in (plans.choice, plans.other)
    )
    changes = changes_of(problem.ranks, first, last)
    idle_of = {idle.column: idle for idle in idle_times}
    kept = np.zeros(len(waits), dtype=np.bool_)
    for row in np.argsort(-waits.low_s, kind="stable").tolist():
        plan, idle = int(waits.plan[row]), idle_of[int(waits.column[row])]
        more = 2
        if idle.position != BEGINNING:
            following = problem.ranks[idle.rank][idle.until or 0]
            more = 1 + int(last[plan, idle.column] == first[plan, following])
        only = slice(plan, plan + 1)
        left = budget.left(changes[:, only], plans.time_s[only])[idle.rank, 0]
        if left == MANY or left >= more:
            changes[idle.rank, plan] += more
            kept[row] = True
    return Waits(waits.plan[kept], waits.column[kept], waits.low_s[kept])
