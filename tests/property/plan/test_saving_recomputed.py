"""The saving, the number that people quote, recomputed by another road: stages that run by hand."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import run

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.record import Portion
from perseus_ds.plan.select import unslowed_s
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Instruction, Kind, textbook


def random_profile(draw: random.Random, stages: int) -> Profile:
    """Measured as if by a bad node: clocks of any number, the highest now and then not the fastest."""
    points: dict[tuple[int, Kind], tuple[Point, ...]] = {}
    for stage in range(stages):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            seconds, power_w = draw.uniform(0.03, 0.2), draw.uniform(200.0, 400.0)
            clocks = sorted(draw.sample(range(600, 1500, 15), draw.randint(1, 6)), reverse=True)
            points[stage, kind] = tuple(
                Point(
                    clock,
                    seconds * 1410 / clock * draw.uniform(0.98, 1.02),
                    power_w * seconds * (0.4 + 0.6 * (clock / 1410) ** 2) * draw.uniform(0.97, 1.03),
                )
                for clock in clocks
            )
    return Profile(points)


def by_hand(plans: PlanSet, option: dict[Instruction, tuple[Portion, ...]]) -> tuple[float, float]:
    """Time and energy of one iteration, by ranks that run their orders one instruction after another.

    Nothing of the graph, the solver or the checker is used: only orders and options.
    """
    lasts_s, spent_j = dict[str, float](), 0.0
    for one, portions in option.items():
        options = plans.options[one.stage, one.kind]
        lasts_s[str(one)] = sum(share * float(options.time_s[which]) for which, share in portions)
        spent_j += sum(share * float(options.energy_j[which]) for which, share in portions)
    orders = plans.schedule.orders
    ends = run([[str(one) for one in order] for order in orders], lasts_s.__getitem__)
    assert ends is not None
    iteration_s = max(ends.values())
    waited_s = len(orders) * iteration_s - sum(lasts_s.values())
    return iteration_s, spent_j + plans.blocking_power_w * waited_s


SEEDS = [seed if seed < 60 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(200)]


def random_plans(seed: int, blocking_w: float | None = None) -> PlanSet:
    draw = random.Random(seed)
    stages = draw.randint(1, 4)
    profile = random_profile(draw, stages)
    blocking_w = draw.uniform(0.0, 120.0) if blocking_w is None else blocking_w
    schedule = textbook(draw.choice(["1f1b", "gpipe"]), stages=stages, microbatches=draw.randint(1, 5))
    return build(profile, schedule, blocking_power_w=blocking_w)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_printed_saving_is_the_one_by_hand(seed: int) -> None:
    plans = random_plans(seed)
    highest = dict.fromkeys(plans.computations(), (Portion(0, 1.0),))
    baseline_s, baseline_j = by_hand(plans, highest)
    assert plans.baseline.iteration_time_s == pytest.approx(baseline_s, rel=1e-9)
    assert plans.baseline.energy_j == pytest.approx(baseline_j, rel=1e-9)
    for index in range(0, len(plans), max(1, len(plans) // 8)):
        plan = plans.plan(index)
        time_s, energy_j = by_hand(plans, plan.portions())
        assert plan.iteration_time_s == pytest.approx(time_s, rel=1e-9)
        assert plan.saving_pct == pytest.approx(100.0 * (1.0 - energy_j / baseline_j), abs=1e-7)
        assert plan.slowdown_pct == pytest.approx(100.0 * (time_s / baseline_s - 1.0), abs=1e-7)


@given(st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_no_slowdown_is_the_cheapest_that_is_no_slower_than_all_maximum_clocks(seed: int) -> None:
    plans = random_plans(seed, 70.0)
    chosen = select(plans, Objective())
    limit_s = max(plans.baseline.iteration_time_s, float(plans.iteration_time_s[0]))
    fits = [plans.plan(i) for i in range(len(plans)) if plans.iteration_time_s[i] <= limit_s * (1 + 1e-9)]
    assert chosen.energy_j == min(plan.energy_j for plan in fits)
    assert unslowed_s(plans) == pytest.approx(limit_s)


@given(st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_no_plan_as_fast_is_below_a_bound(seed: int) -> None:
    plans = random_plans(seed, 70.0)
    cheapest_so_far_j = np.minimum.accumulate(plans.energy_j)
    assert (plans.lower_bound_j <= cheapest_so_far_j * (1 + 1e-9)).all()
    assert (np.diff(plans.lower_bound_j) <= 1e-9 * plans.energy_j[0]).all()
    assert (plans.effective_bound_j <= plans.effective_energy_j + 1e-9 * plans.energy_j).all()
