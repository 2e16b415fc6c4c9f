"""A bound on how much a pipeline's power may change within a second: which plans keep it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.playing.costs import swing_w
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.splits import Splits
from perseus_ds.plan.waits import Waits


def within_swing(plans: PlanSet, most_w: float | None) -> PlanSet:
    """Leave out the plans whose power changes by more within a second; all swings are noted in ``swings_w``.

    Where every plan swings more, the steadiest is left alone. None is no bound: the same plans.

    Cost: a pass over the schedule's graph for each plan.
    """
    if most_w is None:
        return plans
    swings_w = np.array([swing_w(plans.plan(index)) for index in range(len(plans))])
    kept = np.flatnonzero(swings_w <= most_w)
    if not len(kept):
        kept = np.array([int(np.argmin(swings_w))])
    return replace(_only(plans, kept), swings_w=swings_w[kept])


def bound_in_words(most_w: float | None) -> str:
    """As fingerprints name it, behind what else holds for clocks; empty without a bound."""
    return "" if most_w is None else f", swing at most {most_w:g} W"


def _only(plans: PlanSet, kept: NDArray[np.int64]) -> PlanSet:
    """Return some of the plans, in their order, under new indexes."""
    place = np.full(len(plans), -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    splits, waits, feedback = plans.splits, plans.waits, plans.feedback
    within, ratio = plans.saving_within_pct, plans.power_ratio
    of_splits, of_waits = place[splits.plan] >= 0, place[waits.plan] >= 0
    return replace(
        plans,
        iteration_time_s=plans.iteration_time_s[kept],
        effective_energy_j=plans.effective_energy_j[kept],
        lower_bound_j=plans.lower_bound_j[kept],
        effective_bound_j=plans.effective_bound_j[kept],
        choice=plans.choice[kept],
        saving_within_pct=within if within is None else within[kept],
        power_ratio=ratio if ratio is None else ratio[kept],
        splits=Splits(
            place[splits.plan[of_splits]],
            splits.column[of_splits],
            splits.option[of_splits],
            splits.share[of_splits],
        ),
        waits=Waits(place[waits.plan[of_waits]], waits.column[of_waits], waits.low_s[of_waits]),
        variation_slowdown_pct=plans.variation_slowdown_pct if place[0] == 0 else None,
        expected={int(place[index]): one for index, one in plans.expected.items() if place[index] >= 0},
        feedback=None
        if feedback is None or place[feedback.plan] < 0
        else replace(feedback, plan=int(place[feedback.plan])),
    )
