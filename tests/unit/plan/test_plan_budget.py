"""A budget of changes: every plan keeps it, as counted from its requests; an impossible one is reported."""

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import pytest
from schedules import clocks_of_stage

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PlanError, SolverError
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.clock_requests import clock_requests
from perseus_ds.plan.problem import Split, Switching, Wait
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.verify import verify
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Emulator

pytestmark = pytest.mark.thorough

STAGES, MICROBATCHES, WAITING_W = 3, 6, 60.0
SCHEDULE = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
CLOCKS = (1400, 1300, 1200, 1100, 1000)
LATE = ClockChange(0.005, 0.005, 0.005)


def profile() -> Profile:
    points = {}
    for stage, weight in enumerate((0.8, 1.0, 0.9)):
        for kind, base_s in ((Kind.FORWARD, 0.05), (Kind.BACKWARD, 0.1)):
            points[stage, kind] = tuple(_point(clock, base_s * weight) for clock in CLOCKS)
    return Profile(points=points, blocking_w={1400: WAITING_W, 300: 40.0})


def _point(clock_mhz: int, base_s: float) -> Point:
    time_s = base_s * (0.1 + 0.9 * CLOCKS[0] / clock_mhz)
    return Point(clock_mhz, time_s, time_s * (100.0 + 200.0 * (clock_mhz / CLOCKS[0]) ** 3))


@cache
def planned(budget: ChangeBudget, split: Split = "automatic", waits: Wait = "never") -> PlanSet:
    return built(Switching(LATE, budget=budget, split=split, waits=waits))


def built(switching: Switching) -> PlanSet:
    return build(profile(), SCHEDULE, blocking_power_w=WAITING_W, switching=switching, verify=True)


@pytest.mark.parametrize(("split", "waits"), [("automatic", "automatic"), ("never", "never")])
@pytest.mark.parametrize("budget", [ChangeBudget(6.0), ChangeBudget(5.0, 9.0, gpus_per_node=2)])
def test_no_gpu_is_asked_more_often_than_allowed(budget: ChangeBudget, split: Split, waits: Wait) -> None:
    plans, size = planned(budget, split, waits), budget.gpus_per_node
    assert verify(plans) == len(plans)
    for plan in map(plans.plan, range(len(plans))):
        asked = [len(clock_requests(plan, rank, LATE)) for rank in range(STAGES)]
        assert max(asked) <= budget.per_gpu_per_s * plan.iteration_time_s
        if budget.per_node_per_s is not None:
            nodes = [sum(asked[first : first + size]) for first in range(0, STAGES, size)]
            assert max(nodes) <= budget.per_node_per_s * plan.iteration_time_s
    with pytest.raises(SolverError, match="budget"):
        verify(replace(plans, budget=ChangeBudget(0.5)))


@pytest.mark.parametrize("reserve", [0.0, "automatic"])
def test_where_the_shortest_time_asks_for_more_changes_than_allowed_longer_ones_are_planned(
    reserve: float | Literal["automatic"],
) -> None:
    """With errors in a profile the fastest clock of forwards may be a lower one than that of backwards."""
    wrong = {
        (stage, kind): tuple(
            replace(point, time_s=0.8 * point.time_s)
            if kind is Kind.FORWARD and point.clock_mhz == 1200
            else point
            for point in varying
        )
        for (stage, kind), points in profile().points.items()
        for varying in [[replace(point, time_sd_s=0.02 * point.time_s) for point in points]]
    }
    plans = build(
        replace(profile(), points=wrong),
        textbook("1f1b", stages=STAGES, microbatches=3),
        blocking_power_w=WAITING_W,
        reserve_pct=reserve,
        switching=Switching(LATE, budget=ChangeBudget(per_node_per_s=1.0)),
    )
    kept = 1.0 + 0.01 * plans.reserve_pct
    assert plans.t_min_s < float(plans.iteration_time_s[0]) <= kept * plans.baseline.iteration_time_s + 1e-9


@pytest.mark.parametrize("rate", [1e6, 6.0, 4.0])
def test_what_is_planned_within_a_budget_is_what_is_played(rate: float) -> None:
    """With changes of 40 ms, as long as a computation: no time lost, and nearly all of the saving."""
    change = ClockChange(0.02, 0.02, 0.02)
    plans = built(Switching(change, budget=ChangeBudget(rate)))
    emulator = Emulator(plans, profile(), ClusterShape(change=change, waiting_w=WAITING_W))
    ours, default = (emulator.play(6, always=one) for one in (0, DEFAULT_CLOCKS))
    assert ours.job_s[1:].sum() == pytest.approx(default.job_s[1:].sum(), rel=2e-4)
    saving_pct = 100.0 * (1.0 - ours.energy_j[1:].sum() / default.energy_j[1:].sum())
    assert saving_pct == pytest.approx(plans.plan(0).saving_pct, abs=0.2)


def test_changes_longer_than_an_iteration_are_refused_unless_none_is_made() -> None:
    slow = ClockChange(0.0, 60.0, 60.0)
    with pytest.raises(PlanError, match="60 s"):
        built(Switching(slow))
    plans = built(Switching(slow, budget=ChangeBudget(0.0)))
    for plan in map(plans.plan, range(len(plans))):
        for rank in range(STAGES):
            assert not clock_requests(plan, rank, slow)
            assert len(set(clocks_of_stage(plan, rank))) == 1


@pytest.mark.parametrize("change", [ClockChange(0.0, 0.05, 0.005), ClockChange(0.0, 0.005, 0.05)])
def test_up_and_down_may_differ_tenfold(change: ClockChange) -> None:
    plans = built(Switching(change, budget=ChangeBudget(5.0)))
    assert verify(plans) == len(plans)
    assert 0.0 < plans.plan(0).saving_pct < built(Switching()).plan(0).saving_pct


@pytest.mark.slow
def test_waits_get_their_share_of_the_changes() -> None:
    """Low waits within a budget never save less than without them, and stay within it."""
    waiting: list[Wait] = ["automatic", "never"]
    for rate in (10.0, 8.0, 6.0):
        low, high = (planned(ChangeBudget(rate), "automatic", waits) for waits in waiting)
        assert verify(low) == len(low)
        assert low.plan(0).saving_pct >= high.plan(0).saving_pct - 0.05
        assert len(low.waits)


@pytest.mark.parametrize("budget", [ChangeBudget(1e4), ChangeBudget(None, 3e4, gpus_per_node=2)])
def test_a_budget_that_forbids_nothing_gives_the_plans_of_none(budget: ChangeBudget) -> None:
    free, within = planned(ChangeBudget()), planned(budget)
    assert np.array_equal(within.iteration_time_s, free.iteration_time_s)
    assert np.array_equal(within.energy_j, free.energy_j)


def test_others_leave_less_of_a_budget_and_one_that_makes_no_sense_is_refused() -> None:
    budget = ChangeBudget(10.0, 30.0, gpus_per_node=2)
    assert budget.less(2, 0.5) == ChangeBudget(6.0, 22.0, gpus_per_node=2)
    assert budget.less(5, 0.5) is None
    for wrong in ({"per_gpu_per_s": np.nan}, {"per_node_per_s": -1.0}, {"gpus_per_node": 0}):
        with pytest.raises(PlanError, match="budget"):
            ChangeBudget(**wrong)
