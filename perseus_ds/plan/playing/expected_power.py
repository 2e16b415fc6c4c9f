"""The power that plans really take beside the planned: GPUs wait at the clock of what follows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.playing.expected import expected
from perseus_ds.plan.record import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of

_MOST_NODES = 30_000  # played in all: about half a second
_FEWEST, _MOST = 2, 12


def power_ratios(plans: PlanSet, profile: Profile, change: ClockChange) -> dict[int, float]:
    """Return expected by planned power of some plans, spread over the frontier; none without a power to know.

    Cost: a pass over the schedule's graph for each of them, `_MOST_NODES` nodes in all.
    """
    if not profile.blocking_w:
        return {}
    points = int(np.clip(_MOST_NODES // len(dag_of(plans.schedule).nodes), _FEWEST, _MOST))
    baseline, ratios = plans.baseline, {}
    for index in sorted(set(np.linspace(0, len(plans) - 1, points).astype(int).tolist())):
        hope = expected(plans.plan(index), profile, change)
        energy_j = baseline.energy_j * (1.0 - hope.saving_pct / 100.0)
        time_s = baseline.iteration_time_s * (1.0 + hope.slowdown_pct / 100.0)
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        ratios[index] = float(energy_j / time_s / planned_w)
    return ratios


def ratio_of_all(ratios: Mapping[int, float], plans: int) -> NDArray[np.float64]:
    """Interpolate the ratio for every plan; 1 where none is known.

    Shape: [plans].
    """
    if not ratios:
        return np.ones(plans)
    known = sorted(ratios)
    between: NDArray[np.float64] = np.interp(np.arange(plans), known, [ratios[index] for index in known])
    return between
