"""What power a pipeline takes at every plan: the table that schedulers choose from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.playing.costs import swing_w
from perseus_ds.plan.record import PlanSet


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """One plan as a scheduler sees it, of one pipeline, each over its own iteration time.

    ``slowdown_pct`` and ``saving_pct`` are against default clocks, ``swing_w`` is the largest change of power
    within a second.
    """

    plan: int
    power_w: float
    iteration_time_s: float
    slowdown_pct: float
    energy_j: float
    saving_pct: float
    swing_w: float


def power_w(plans: PlanSet) -> NDArray[np.float64]:
    """Return the mean power of one pipeline at every plan.

    Shape: [plans].
    """
    power: NDArray[np.float64] = plans.energy_j / plans.iteration_time_s
    return power


def power_table(plans: PlanSet) -> list[PowerPoint]:
    """Return every plan that is worth its time, the fastest first.

    A plan is worth its time where no faster one takes as little power.

    Cost: a pass over the schedule's graph for each plan.
    """
    power, least_w = power_w(plans), np.inf
    table = []
    for index in range(len(plans)):
        if power[index] >= least_w:
            continue
        plan = plans.plan(index)
        least_w = float(power[index])
        table.append(
            PowerPoint(
                plan=index,
                power_w=least_w,
                iteration_time_s=plan.iteration_time_s,
                slowdown_pct=plan.slowdown_pct,
                energy_j=plan.energy_j,
                saving_pct=plan.saving_pct,
                swing_w=swing_w(plan),
            )
        )
    return table
