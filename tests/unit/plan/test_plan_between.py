"""A plan for a time between two of the frontier: valid, certified, and no dearer than both of them mixed."""

from dataclasses import replace

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, build, dumps, loads, select, verify
from perseus_ds.plan.check import check_bounds_by_lp, check_times_by_networkx
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.select import with_plan_at, with_plan_within
from perseus_ds.schedule import textbook

PROFILE = textbook_profile([1.0, 1.2, 0.9])
WAITING = replace(PROFILE, blocking_w={1410: 70.0, 300: 40.0})


def planned(switching: Switching = Switching(), *, waiting: bool = False) -> PlanSet:  # noqa: B008
    return build(
        WAITING if waiting else PROFILE,
        textbook("1f1b", stages=3, microbatches=5),
        blocking_power_w=70.0,
        reserve_pct=0.5,
        switching=switching,
    )


@pytest.fixture(scope="module", params=[0.0, 0.004])
def plans(request: pytest.FixtureRequest) -> PlanSet:
    return planned(Switching(ClockChange.of_latency(request.param)))


def times_between(plans: PlanSet, count: int) -> list[tuple[int, float]]:
    """Some times with the plan behind each: in the middle, and near to either side."""
    after = np.linspace(1, len(plans) - 1, count).astype(int)
    shares = np.resize([0.5, 0.02, 0.97], count)
    times_s = plans.iteration_time_s
    between_s = times_s[after - 1] + shares * (times_s[after] - times_s[after - 1])
    return list(zip(after.tolist(), between_s.tolist(), strict=True))


@pytest.mark.thorough
def test_it_takes_as_long_as_asked_and_costs_no_more_than_the_mixture(plans: PlanSet) -> None:
    found = []
    for after, time_s in times_between(plans, 60):
        grown = with_plan_at(plans, time_s)
        found.append(len(grown) - len(plans))
        if not found[-1]:
            continue
        early_s, late_s = plans.iteration_time_s[after - 1 : after + 1]
        early_j, late_j = plans.effective_energy_j[after - 1 : after + 1]
        mixed_j = early_j + (time_s - early_s) / (late_s - early_s) * (late_j - early_j)
        assert early_s < grown.iteration_time_s[after] <= time_s
        least_j = mixed_j if not plans.change.call_s else early_j  # parts that are too short cost a little
        assert grown.effective_energy_j[after] <= least_j * (1.0 + 1e-6)
        assert grown.waiting_gap_pct[after] < 0.1
    assert sum(found) >= 0.9 * len(found)


def test_every_certificate_holds(plans: PlanSet) -> None:
    for after, time_s in times_between(plans, 7):
        grown = with_plan_at(plans, time_s)
        assert verify(grown) == len(grown)
        check_times_by_networkx(grown, [after])
        check_bounds_by_lp(grown, [after])


def test_a_cap_of_power_between_two_plans_is_used_up(plans: PlanSet) -> None:
    power_w = plans.energy_j / plans.iteration_time_s
    at = len(plans) // 2
    cap = Objective("power_cap", power_cap_w=float(power_w[at : at + 2].mean()))
    found = select(with_plan_within(plans, cap), cap)
    assert found.energy_j / found.iteration_time_s <= cap.power_cap_w
    assert found.iteration_time_s < select(plans, cap).iteration_time_s


def test_it_is_written_and_the_plans_around_stay_what_they_were(plans: PlanSet) -> None:
    after, time_s = times_between(plans, 3)[1]
    grown = with_plan_at(plans, time_s)
    assert dumps(loads(dumps(grown))) == dumps(grown)
    for old, new in ((after - 1, after - 1), (after, after + 1), (0, 0), (len(plans) - 1, len(plans))):
        assert plans.plan(old).portions() == grown.plan(new).portions()
        assert plans.plan(old).energy_j == grown.plan(new).energy_j


def test_where_no_two_plans_lie_around_a_time_nothing_is_added(plans: PlanSet) -> None:
    times_s = plans.iteration_time_s
    for time_s in (0.5 * times_s[0], times_s[0], times_s[3], times_s[-1], 2.0 * times_s[-1]):
        assert with_plan_at(plans, float(time_s)) is plans


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("switching", "waiting"),
    [
        (Switching(split="never"), False),
        (Switching(budget=ChangeBudget(3.0)), False),
        (Switching(ClockChange.of_latency(0.002), waits="automatic"), True),
    ],
)
def test_what_a_mixture_could_break_is_left_alone(switching: Switching, *, waiting: bool) -> None:
    plans = planned(switching, waiting=waiting)
    times_s = plans.iteration_time_s
    middle = len(plans) // 2
    assert with_plan_at(plans, float(times_s[middle - 1 : middle + 1].mean())) is plans
