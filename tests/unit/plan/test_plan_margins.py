"""A margin for a profile's own errors: below the highest clock nothing is planned as fast as it seems."""

from dataclasses import replace

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, Switching, build, select
from perseus_ds.plan.file import dumps, loads
from perseus_ds.plan.reserve import margins_s
from perseus_ds.plan.verify import verify
from perseus_ds.profile import Point, Profile, smooth
from perseus_ds.schedule import textbook

TRUE = textbook_profile([1.0, 0.97, 1.04, 1.01])
SCHEDULE = textbook("1f1b", stages=4, microbatches=6)


def off_by(share: float, seed: int) -> Profile:
    """Every time off by itself, which the profile states."""
    draw = np.random.default_rng(seed)

    def wrong(point: Point) -> Point:
        time_s = point.time_s * (1.0 + share * float(draw.standard_normal()))
        errors = {"time_se_s": share * point.time_s, "energy_se_j": share * point.energy_j}
        return replace(point, time_s=time_s, **errors)

    return replace(TRUE, points={key: tuple(map(wrong, own)) for key, own in TRUE.points.items()})


def plans_of(profile: Profile) -> PlanSet:
    return build(profile, SCHEDULE, blocking_power_w=70.0)


def test_an_exact_profile_has_no_margin_and_a_plan_file_keeps_those_of_others() -> None:
    assert margins_s(TRUE) == {}
    assert all(options.margin_s is None for options in plans_of(TRUE).options.values())
    plans = plans_of(off_by(0.01, 3))
    again = loads(dumps(plans))
    for key, options in plans.options.items():
        assert options.margin_s is not None
        np.testing.assert_array_equal(again.options[key].planned_s(1.0), options.planned_s(1.0))
    assert verify(again) > 0


@pytest.mark.thorough
def test_what_is_less_known_gets_more_margin_and_the_highest_clock_none() -> None:
    few, many = (margins_s(smooth(off_by(share, 1))) for share in (0.005, 0.02))
    for key, own in few.items():
        assert own[0] == many[key][0] == 0.0
        assert (own[1:] > 0.0).all()
        assert many[key].mean() > 2.0 * own.mean()


def test_a_lower_clock_that_is_surely_faster_keeps_its_time() -> None:
    sure = off_by(1e-3, 1).points.items()
    points = {key: (own[0], replace(own[1], time_s=0.9 * own[1].time_s), *own[2:]) for key, own in sure}
    plans = plans_of(replace(TRUE, points=points))
    assert any(options.time_s.argmin() == 1 for options in plans.options.values())
    assert verify(loads(dumps(plans))) > 0


@pytest.mark.parametrize("latency_s", [0.0, 0.002])
def test_the_plan_that_loses_no_time_takes_all_the_time_there_is(latency_s: float) -> None:
    """Also where the fastest plan is faster: a power cap throttles the highest clock by 3 %."""
    points = {
        key: (replace(own[0], time_s=1.03 * own[1].time_s), *own[1:]) for key, own in TRUE.points.items()
    }
    switching = Switching(ClockChange(0.0, latency_s, latency_s))
    plans = build(replace(TRUE, points=points), SCHEDULE, blocking_power_w=70.0, switching=switching)
    assert plans.t_min_s < 0.99 * plans.baseline.iteration_time_s
    chosen = select(plans, Objective())
    assert chosen.iteration_time_s == pytest.approx(plans.baseline.iteration_time_s, rel=1e-6)
    assert plans.waiting_gap_pct[chosen.index] < 1e-3
