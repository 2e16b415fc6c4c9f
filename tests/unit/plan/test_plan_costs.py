"""What a plan asks of clocks and of the site, against sums by hand."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from schedules import clocks_of_stage
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.clock_requests import Played, play, play_baseline
from perseus_ds.plan.problem import Switching, slow_first
from perseus_ds.plan.select import costs_of, largest_change
from perseus_ds.plan.waits import WaitClock
from perseus_ds.schedule import textbook

pytestmark = pytest.mark.thorough

HIGH_W, LOW_W = 70.0, 50.0
CHANGE = ClockChange(0.002, 0.004, 0.003)


def planned(waits: str, split: str = "automatic") -> PlanSet:
    profile = dataclasses.replace(textbook_profile([1.0, 1.1, 1.3]), blocking_w={1410: HIGH_W, 705: LOW_W})
    schedule = textbook("1f1b", stages=3, microbatches=4)
    switching = Switching(CHANGE, split=split, waits=waits)
    return build(profile, schedule, blocking_power_w=HIGH_W, switching=switching)


@pytest.fixture(scope="module", params=["automatic", "never"])
def plans(request: pytest.FixtureRequest) -> PlanSet:
    return planned(request.param)


def least_and_most_w(played: list[Played], total_s: float) -> tuple[float, float]:
    """The power of stretches in which nobody begins or ends; of three GPUs, who does not work waits."""
    ends = sorted({0.0, total_s} | {one.start_s for one in played} | {one.end_s for one in played})
    found = []
    for begin_s, end_s in pairwise(ends):
        middle_s = (begin_s + end_s) / 2
        at_work = [one for one in played if one.parts and one.start_s < middle_s < one.end_s]
        if end_s - begin_s > 1e-9 * total_s:
            working_w = sum(one.energy_j / one.duration_s for one in at_work)
            found.append(working_w + HIGH_W * (3 - len(at_work)))
    return min(found), max(found)


def worked_s(played: list[Played]) -> float:
    return sum(one.duration_s for one in played if one.parts)


def test_power_over_time_is_energy_and_waiting_is_what_working_leaves(plans: PlanSet) -> None:
    before = plans.baseline
    waited_before_s = 3 * before.iteration_time_s - worked_s(play_baseline(plans))
    for plan in map(plans.plan, range(0, len(plans), 7)):
        costs = costs_of(plan)
        assert costs.power.mean_w * plan.iteration_time_s == pytest.approx(plan.energy_j, rel=1e-9)
        assert costs.power_before.mean_w * before.iteration_time_s == pytest.approx(before.energy_j, rel=1e-9)
        assert costs.power.least_w <= costs.power.mean_w <= costs.power.peak_w
        waiting_s = 3 * plan.iteration_time_s - worked_s(play(plan))
        assert costs.waiting_j == pytest.approx(plan.energy_j - sum(one.energy_j for one in play(plan)))
        assert LOW_W * waiting_s - 1e-9 <= costs.waiting_j <= HIGH_W * waiting_s + 1e-9
        assert costs.waiting_before_j == pytest.approx(HIGH_W * waited_before_s)


def test_power_swings_and_changes_are_counted_round_the_iteration() -> None:
    steady = planned("never", "never")
    before = play_baseline(steady), steady.baseline.iteration_time_s
    for plan in map(steady.plan, range(0, len(steady), 7)):
        costs, now = costs_of(plan), (play(plan), plan.iteration_time_s)
        for found, played in ((costs.power, now), (costs.power_before, before)):
            assert (found.least_w, found.peak_w) == pytest.approx(least_and_most_w(*played), rel=1e-9)
        rounds = [clocks + clocks[:1] for clocks in (clocks_of_stage(plan, stage) for stage in range(3))]
        assert costs.changes == max(sum(a != b for a, b in pairwise(clocks)) for clocks in rounds)
        assert costs.changes_per_s == pytest.approx(costs.changes / plan.iteration_time_s)
        assert costs.splits == 0


def test_a_wait_is_low_from_when_the_clock_is_down_until_it_is_up_again() -> None:
    """5 % and 2 ms early it is up: of 1 s, 948 ms less 6 ms to go down; too short a wait is left alone."""
    clock = WaitClock(705, LOW_W, HIGH_W, ClockChange(call_s=0.002, settle_up_s=0.05, settle_down_s=0.004))
    assert (clock.down_s, clock.up_s) == pytest.approx((0.006, 0.052))
    waits_s = np.array([1.0, 0.049, 0.060, 0.064])
    # 0.060: asked up at 0.055 - 0.052 = 0.003, before it is down; 0.064: at 0.0068, just after
    assert clock.low_s(waits_s).tolist() == pytest.approx([0.942, 0.0, 0.0, 0.0528])


@pytest.mark.parametrize("powers", [(60.0, 50.0), (-1.0, 50.0), (np.nan, 50.0), (10.0, np.inf)])
def test_a_low_clock_takes_less(powers: tuple[float, float]) -> None:
    with pytest.raises(PlanError, match="705 MHz"):
        WaitClock(705, *powers, ClockChange())


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_parts_changes_the_clock_least_often(seed: int) -> None:
    """Against every order of every computation."""
    draw = np.random.default_rng(seed)
    fast = draw.choice([1410, 1200, 900], size=(4, 6))
    slow = np.minimum(fast, draw.choice([1200, 900, 705], size=(4, 6)))
    turned = slow_first([range(6)], fast, slow)
    for plan in range(4):
        both = list(zip(fast[plan].tolist(), slow[plan].tolist(), strict=True))

        def changes(ways: Sequence[bool], both: list[tuple[int, int]] = both) -> int:
            parts = [(s, f) if way else (f, s) for (f, s), way in zip(both, ways, strict=True)]
            return sum(one[1] != other[0] for one, other in pairwise(parts))

        assert changes(turned[plan]) == min(map(changes, product([False, True], repeat=6)))


@pytest.mark.parametrize("within_s", [0.05, 0.4, 1.0, 7.0])
def test_the_largest_change_is_that_of_any_two_moments(within_s: float) -> None:
    """Against any two pieces whose nearest ends are near enough, in three periods and what a window holds."""
    random = np.random.default_rng(5)
    for _ in range(20):
        lasts_s, level = random.uniform(0.02, 0.3, 9), random.uniform(50.0, 400.0, 9)
        periods = 3 + int(within_s / lasts_s.sum())
        ends_s, levels = np.cumsum(np.tile(lasts_s, periods)), np.tile(level, periods)
        apart_s = (ends_s - np.tile(lasts_s, periods))[None] - ends_s[:, None]
        most = np.abs(levels[None] - levels[:, None])[np.triu(apart_s <= within_s)].max()
        assert largest_change(lasts_s, level, within_s) == pytest.approx(most, abs=1e-9)
