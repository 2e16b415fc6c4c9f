"""The plan that an objective chooses, and plans for a time between two of the frontier."""

from dataclasses import replace

import numpy as np
import pytest
from schedules import clocks_of_stage, hand_made
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.check import check_bounds_by_lp, check_times_by_networkx
from perseus_ds.plan.file import dumps, loads
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.select import select_for, with_plan_at, with_plan_within
from perseus_ds.plan.verify import verify
from perseus_ds.schedule import textbook

# The frontier: 6 s 1600 J, 7 s 1500 J, 9 s 1550 J (effective: 1000, 800, 650 J).
CHOICES = [
    (Objective(), 0),
    (Objective("max_slowdown", max_slowdown_pct=10), 0),
    (Objective("max_slowdown", max_slowdown_pct=20), 1),
    (Objective("max_slowdown", max_slowdown_pct=1000), 1),  # 9 s would use more again
    (Objective("min_energy"), 1),
    (Objective("deadline", deadline_s=6.0), 0),
    (Objective("deadline", deadline_s=100.0), 1),
    (Objective("power_cap", power_cap_w=270.0), 0),
    (Objective("power_cap", power_cap_w=220.0), 1),
    (Objective("power_cap", power_cap_w=180.0), 2),
]


@pytest.mark.parametrize(("objective", "index"), CHOICES)
def test_objective_chooses_by_total_energy(objective: Objective, index: int) -> None:
    assert select(hand_made(), objective).index == index


def test_a_plan_states_its_energy_clocks_and_saving() -> None:
    plans = hand_made()
    assert plans.blocking_total_w == 100.0
    assert plans.energy_j.tolist() == [1600.0, 1500.0, 1550.0]
    assert plans.gap_pct == pytest.approx([100 * 20 / 1580, 0.0, 100 * 50 / 1500])
    options = {str(i): [part.option for part in own] for i, own in plans.plan(2).portions().items()}
    assert options == {"0F0": [1], "0B0": [2], "1F0": [1], "1B0": [1]}
    assert [clocks_of_stage(plans.plan(2), stage) for stage in (0, 1)] == [[1000, 700], [1000, 1000]]
    assert (plans.plan(1).iteration_time_s, plans.plan(1).energy_j) == (7.0, 1500.0)
    assert plans.plan(1).saving_pct == pytest.approx(100 * (1 - 1500 / 1600))
    assert plans.plan(1).slowdown_pct == pytest.approx(100 / 6)
    assert plans.plan(-1).index == 2
    with pytest.raises(IndexError):
        plans.plan(3)


@pytest.mark.parametrize(("pct", "index"), [(0.0, 0), (1.0, 0), (2.0, 1)])
def test_a_slowdown_counts_from_the_maximum_clocks_not_from_the_fastest_plan(pct: float, index: int) -> None:
    """All clocks at maximum take 6.9 s, the fastest plan 6 s, the next 7 s."""
    plans = hand_made()
    plans = replace(plans, baseline=replace(plans.baseline, iteration_time_s=6.9))
    assert select(plans, Objective("max_slowdown", max_slowdown_pct=pct)).index == index


@pytest.mark.parametrize(
    ("objective", "nearest"),
    [
        (Objective("deadline", deadline_s=5.9), r"\b6 s"),
        (Objective("power_cap", power_cap_w=100.0), r"172\.222 W"),
    ],
)
def test_what_no_plan_keeps_is_refused_with_the_nearest(objective: Objective, nearest: str) -> None:
    with pytest.raises(InfeasibleError, match=nearest):
        select(hand_made(), objective)


@pytest.mark.parametrize(
    ("straggler_time_s", "index"), [(0.0, 0), (6.0, 0), (6.99, 0), (7.0, 1), (8.9, 1), (9.0, 2), (1e9, 2)]
)
def test_beside_a_straggler_effective_energy_decides(straggler_time_s: float, index: int) -> None:
    assert select_for(hand_made(), straggler_time_s).index == index


# A plan for a time between two of the frontier: valid, certified, and no dearer than both of them mixed.

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
    return planned(Switching(ClockChange(0.0, request.param, request.param)))


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


def test_every_certificate_holds_also_of_what_is_written_and_the_plans_around_stay(plans: PlanSet) -> None:
    for after, time_s in times_between(plans, 7):
        grown = with_plan_at(plans, time_s)
        assert verify(grown) == len(grown)
        assert dumps(loads(dumps(grown))) == dumps(grown)
        check_times_by_networkx(grown, [after])
        check_bounds_by_lp(grown, [after])
        for old, new in ((after - 1, after - 1), (after, after + 1), (0, 0), (len(plans) - 1, len(plans))):
            assert plans.plan(old).portions() == grown.plan(new).portions()
            assert plans.plan(old).energy_j == grown.plan(new).energy_j


def test_a_cap_of_power_between_two_plans_is_used_up(plans: PlanSet) -> None:
    power_w = plans.energy_j / plans.iteration_time_s
    at = len(plans) // 2
    cap = Objective("power_cap", power_cap_w=float(power_w[at : at + 2].mean()))
    found = select(with_plan_within(plans, cap), cap)
    assert found.energy_j / found.iteration_time_s <= cap.power_cap_w
    assert found.iteration_time_s < select(plans, cap).iteration_time_s


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
        (Switching(ClockChange(0.0, 0.002, 0.002), waits="automatic"), True),
    ],
)
def test_what_a_mixture_could_break_is_left_alone(switching: Switching, *, waiting: bool) -> None:
    plans = planned(switching, waiting=waiting)
    middle = len(plans) // 2
    assert with_plan_at(plans, float(plans.iteration_time_s[middle - 1 : middle + 1].mean())) is plans
