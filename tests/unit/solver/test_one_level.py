"""One clock for every GPU: against all combinations where these can be counted."""

from __future__ import annotations

from itertools import product

import pytest

from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, Schedule, dag_of, textbook

CLOCKS_MHZ = (1400, 1200, 1000, 800)
WEIGHTS = (1.0, 0.8, 0.9)
WAITING_W = 50.0


def point(clock_mhz: int, weight: float) -> Point:
    at = clock_mhz / CLOCKS_MHZ[0]
    time_s = weight / at
    return Point(clock_mhz, time_s, (100.0 + 250.0 * at**2.5) * time_s)


def planned(schedule: Schedule) -> tuple[Profile, PlanSet]:
    points = {
        (stage, kind): tuple(point(mhz, times * weight) for mhz in CLOCKS_MHZ)
        for stage, weight in enumerate(WEIGHTS)
        for kind, times in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0))
    }
    profile = Profile(points)
    switching = Switching(split="never", budget=ChangeBudget(0.0))
    return profile, build(profile, schedule, blocking_power_w=WAITING_W, reserve_pct=0.0, switching=switching)


@pytest.mark.parametrize("microbatches", [2, 6])
def test_no_combination_of_clocks_is_much_better(microbatches: int) -> None:
    schedule = textbook("1f1b", stages=3, microbatches=microbatches)
    profile, plans = planned(schedule)
    dag, best = dag_of(schedule), list[tuple[float, float]]()
    for clocks in product(range(len(CLOCKS_MHZ)), repeat=3):
        points = [profile.of(node.stage, node.kind)[clocks[node.stage]] for node in dag.nodes]
        lasts = [one.time_s for one in points]
        time_s = max(at + own for at, own in zip(dag.earliest_starts(lasts), lasts, strict=True))
        best.append((time_s, sum(one.energy_j - WAITING_W * one.time_s for one in points)))
    for time_s, cost_j in zip(plans.iteration_time_s, plans.effective_energy_j, strict=True):
        least_j = min(own_j for own_s, own_j in best if own_s <= time_s * (1.0 + 1e-9))
        assert cost_j <= least_j * 1.03
    assert len(plans) > 5
