"""Power of every plan: against the plan's own energy, and swings by brute force."""

import numpy as np
import pytest
from schedules import two_plans

from perseus_ds.plan.select import costs_of, largest_change, power_table

PLANS = two_plans()


def test_power_is_what_the_plan_takes_over_its_time() -> None:
    for point in power_table(PLANS):
        assert point.power_w == pytest.approx(costs_of(PLANS.plan(point.plan)).power.mean_w)
        assert point.energy_j == pytest.approx(point.power_w * point.iteration_time_s)


def test_slower_rows_take_less() -> None:
    table = power_table(PLANS)
    assert len(table) > 1
    assert [one.power_w for one in table] == sorted((one.power_w for one in table), reverse=True)
    assert [one.iteration_time_s for one in table] == sorted(one.iteration_time_s for one in table)


@pytest.mark.parametrize("within_s", [0.05, 0.4, 1.0, 7.0])
def test_the_largest_change_is_that_of_any_two_moments(within_s: float) -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        lasts_s, level = random.uniform(0.02, 0.3, 9), random.uniform(50.0, 400.0, 9)
        assert largest_change(lasts_s, level, within_s) == pytest.approx(
            brute_force(lasts_s, level, within_s), abs=1e-9
        )


def brute_force(lasts_s: np.ndarray, level: np.ndarray, within_s: float) -> float:
    """Any two pieces whose nearest ends are near enough, in three periods and what the window holds."""
    periods = 3 + int(within_s / lasts_s.sum())
    ends_s, levels = np.cumsum(np.tile(lasts_s, periods)), np.tile(level, periods)
    begins_s = ends_s - np.tile(lasts_s, periods)
    return max(
        abs(levels[one] - levels[other])
        for one in range(len(levels))
        for other in range(one, len(levels))
        if begins_s[other] - ends_s[one] <= within_s
    )
