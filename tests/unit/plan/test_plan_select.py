from dataclasses import replace

import pytest
from schedules import hand_made

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan import select, select_for

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
    assert [plans.plan(2).clocks_of_stage(stage) for stage in (0, 1)] == [[1000, 700], [1000, 1000]]
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
    ("straggler_time_s", "index"),
    [(0.0, 0), (6.0, 0), (6.99, 0), (7.0, 1), (8.9, 1), (9.0, 2), (1e9, 2)],
)
def test_beside_a_straggler_effective_energy_decides(straggler_time_s: float, index: int) -> None:
    assert select_for(hand_made(), straggler_time_s).index == index
