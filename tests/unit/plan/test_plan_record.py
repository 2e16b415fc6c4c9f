import numpy as np
import pytest
from schedules import hand_made

from perseus_ds.plan import Portion
from perseus_ds.schedule import Instruction


def test_total_energy_adds_what_waiting_costs() -> None:
    plans = hand_made()
    assert plans.blocking_total_w == 100.0
    assert plans.energy_j.tolist() == [1600.0, 1500.0, 1550.0]
    np.testing.assert_allclose(plans.gap_pct, [100 * 20 / 1580, 0.0, 100 * 50 / 1500])


def test_one_point_tells_its_clocks_in_running_order() -> None:
    plan = hand_made().plan(2)
    assert plan.portions() == {
        Instruction.parse("0F0"): (Portion(1, 1.0),),
        Instruction.parse("0B0"): (Portion(2, 1.0),),
        Instruction.parse("1F0"): (Portion(1, 1.0),),
        Instruction.parse("1B0"): (Portion(1, 1.0),),
    }
    assert plan.clocks_of_stage(0) == [1000, 700]
    assert plan.clocks_of_stage(1) == [1000, 1000]


def test_saving_and_slowdown_are_against_the_baseline() -> None:
    plan = hand_made().plan(1)
    assert (plan.iteration_time_s, plan.energy_j) == (7.0, 1500.0)
    assert plan.saving_pct == pytest.approx(100 * (1 - 1500 / 1600))
    assert plan.slowdown_pct == pytest.approx(100 / 6)


def test_there_is_no_point_beyond_the_frontier() -> None:
    plans = hand_made()
    assert plans.plan(-1).index == 2
    with pytest.raises(IndexError):
        plans.plan(3)
