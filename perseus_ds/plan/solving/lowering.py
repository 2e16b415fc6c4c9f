"""Low clocks in the waits of solved plans: which are worth their changes, and what all others take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.budget import MANY, ChangeBudget, changes_of
from perseus_ds.plan.idle import BEGINNING, Idle, idles
from perseus_ds.plan.solving.solve import Solved, clocks_mhz
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.solving.translation import Translation
from perseus_ds.plan.waits import WaitClock, Waits, low_waits
from perseus_ds.profile import Profile
from perseus_ds.solver import Plans, blended, undominated


def wait_clock_of(profile: Profile, blocking_power_w: float, switching: Switching) -> WaitClock | None:
    """The clock at which waiting takes least, the highest of several; None where none takes less."""
    if switching.waits == "never" or not profile.blocking_w:
        return None
    power_w, lower_mhz = min((power_w, -clock_mhz) for clock_mhz, power_w in profile.blocking_w.items())
    if power_w >= blocking_power_w:
        return None
    return WaitClock(-lower_mhz, power_w, blocking_power_w, switching.change)


def lowered(
    solved: Solved, translation: Translation, clock: WaitClock, budget: ChangeBudget
) -> tuple[Solved, Waits]:
    """Lower the clock in every wait that is long enough; add what all other waits take beyond that.

    The problem was solved as if every wait took the least: what is added is what the bound does not see.
    With a budget the longest waits go down, as far as its changes reach.
    """
    dag, plans, columns = translation.dag, solved.plans, translation.columns
    duration_s, _ = blended(translation.problem, plans.choice, plans.other, plans.share)
    start_s = dag.starts_of_many(duration_s.T, translation.fixed_s)
    end_s = start_s[columns] + duration_s.T[columns]
    idle_times = idles(translation.schedule, translation.fixed_s)
    waits = low_waits(
        idle_times,
        translation.ranks,
        start_s=start_s[columns],
        end_s=end_s,
        time_s=plans.time_s,
        clock=clock,
    )
    if budget.limits:
        waits = _affordable(waits, idle_times, solved, translation, budget)
    high_s = (
        translation.schedule.ranks * plans.time_s - _busy_s(solved, translation) - waits.total_s(len(plans))
    )
    cost_j = plans.cost_j + (clock.high_power_w - clock.power_w) * high_s
    kept = undominated(plans.time_s, cost_j)
    return replace(solved, plans=replace(plans, cost_j=cost_j).at(kept)), waits.of(kept)


def cheapest(found: Sequence[tuple[Solved, Waits]]) -> tuple[Solved, Waits]:
    """Keep of several sets of plans those that no other beats, with their waits."""
    if len(found) == 1:
        return found[0]
    plans = Plans.stacked([solved.plans for solved, _ in found])
    first = np.cumsum([0, *(len(solved.plans) for solved, _ in found[:-1])])
    kept = undominated(plans.time_s, plans.cost_j)
    number = np.full(len(plans), -1, np.int32)
    number[kept] = np.arange(len(kept))
    plan = number[np.concatenate([waits.plan + at for (_, waits), at in zip(found, first, strict=True)])]
    column, low_s = (
        np.concatenate([getattr(waits, name) for _, waits in found]) for name in ("column", "low_s")
    )
    order = np.lexsort((plan, column))
    order = order[plan[order] >= 0]
    return replace(found[0][0], plans=plans.at(kept)), Waits(plan[order], column[order], low_s[order])


def _busy_s(solved: Solved, translation: Translation) -> NDArray[np.float64]:
    """What all computations of each plan really last, without reserve."""
    plans, nodes = solved.plans, translation.dag.nodes
    busy_s = np.zeros(len(plans))
    for column in translation.columns.tolist():
        time_s = translation.options[nodes[column].stage, nodes[column].kind].time_s
        share = plans.share[:, column]
        busy_s += share * time_s[plans.choice[:, column]] + (1.0 - share) * time_s[plans.other[:, column]]
    return busy_s


def _affordable(
    waits: Waits, idle_times: Sequence[Idle], solved: Solved, translation: Translation, budget: ChangeBudget
) -> Waits:
    """Keep the longest waits of every plan while GPU and node have changes left for going down and up."""
    columns, plans = translation.columns, solved.plans
    first = clocks_mhz(translation, plans.choice[:, columns])
    last = clocks_mhz(translation, plans.other[:, columns])
    changes = changes_of(translation.ranks, first, last)
    idle_of = {idle.column: idle for idle in idle_times}
    kept = np.zeros(len(waits), dtype=np.bool_)
    for row in np.argsort(-waits.low_s, kind="stable").tolist():
        plan, idle = int(waits.plan[row]), idle_of[int(waits.column[row])]
        more = 2
        if idle.position != BEGINNING:
            following = translation.ranks[idle.rank][idle.until or 0]
            more = 1 + int(last[plan, idle.column] == first[plan, following])
        only = slice(plan, plan + 1)
        left = budget.left(changes[:, only], plans.time_s[only])[idle.rank, 0]
        if left == MANY or left >= more:
            changes[idle.rank, plan] += more
            kept[row] = True
    return Waits(waits.plan[kept], waits.column[kept], waits.low_s[kept])
