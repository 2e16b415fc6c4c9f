"""The power that plans really take beside the planned: GPUs wait at the clock of what follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.plan.playing.expected import expected
from perseus_ds.plan.record import PlanSet
from perseus_ds.profile import Profile, smoothed
from perseus_ds.schedule import dag_of

_MOST_NODES = 30_000  # played in all: about half a second
_FEWEST, _MOST = 2, 12


def with_power_ratio(plans: PlanSet, profile: Profile, change: ClockChange) -> PlanSet:
    """Add expected by planned power of every plan, for ceilings; of some, and between them by a line.

    Cost: a pass over the schedule's graph for each of these, `_MOST_NODES` nodes in all; nothing of a profile
    without a power of waiting. Not for the training's own thread.
    """
    if not profile.blocking_w:
        return plans
    profile = smoothed(profile)  # once: it takes longer than all that follows
    points = int(np.clip(_MOST_NODES // len(dag_of(plans.schedule).nodes), _FEWEST, _MOST))
    baseline, ratios = plans.baseline, {}
    for index in sorted(set(np.linspace(0, len(plans) - 1, points).astype(int).tolist())):
        hope = expected(plans.plan(index), profile, change)
        energy_j = baseline.energy_j * (1.0 - hope.saving_pct / 100.0)
        time_s = baseline.iteration_time_s * (1.0 + hope.slowdown_pct / 100.0)
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        ratios[index] = float(energy_j / time_s / planned_w)
    return replace(plans, power_ratio=np.interp(np.arange(len(plans)), [*ratios], [*ratios.values()]))
