"""A reserve for durations that vary: as much as keeps the fastest plan's iterations from lasting longer."""

from dataclasses import replace

import pytest
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.reserve import ALLOWED_PCT, CANDIDATES_PCT, UNKNOWN_PCT, Reserve
from perseus_ds.profile import Profile
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator

pytestmark = pytest.mark.thorough

WEIGHTS = [1.0, 1.05, 1.2, 1.1]
SILENT = textbook_profile(WEIGHTS)
SCHEDULE = textbook("1f1b", stages=4, microbatches=8)


def varying(share: float) -> Profile:
    return textbook_profile(WEIGHTS, variation=share)


def plans_of(
    profile: Profile,
    reserve_pct: Reserve = "automatic",
    switching: Switching = Switching(),  # noqa: B008
) -> PlanSet:
    return build(profile, SCHEDULE, blocking_power_w=70.0, reserve_pct=reserve_pct, switching=switching)


def slowdown_pct(plans: PlanSet, noise: float) -> float:
    """As the emulator plays the fastest plan: noise of its own, not that which the reserve was found with."""
    emulator = Emulator(plans, SILENT, ClusterShape(), conditions=Conditions(noise=noise, seed=3))
    plan = select(plans, Objective()).index
    ours, default = (emulator.play(120, always=one).job_s[1:].sum() for one in (plan, DEFAULT_CLOCKS))
    return 100.0 * float(ours / default - 1.0)


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.02])
def test_a_plan_with_the_reserve_loses_no_time_that_matters(noise: float) -> None:
    kept = plans_of(varying(noise))
    assert slowdown_pct(plans_of(SILENT, 0.0), noise) > 2 * ALLOWED_PCT
    assert slowdown_pct(kept, noise) < 2 * ALLOWED_PCT
    assert kept.reserve_pct > 0.0


def test_the_reserve_is_the_least_that_will_do() -> None:
    kept = plans_of(varying(0.01))
    less = CANDIDATES_PCT[CANDIDATES_PCT.index(kept.reserve_pct) - 1]
    assert slowdown_pct(plans_of(SILENT, less), 0.01) > 0.8 * ALLOWED_PCT


def test_a_profile_that_does_not_state_it_of_all_gets_what_one_percent_needs() -> None:
    partly = dict(varying(0.02).points) | {(0, Kind.FORWARD): SILENT.points[0, Kind.FORWARD]}
    for profile in (SILENT, replace(SILENT, points=partly)):
        assert plans_of(profile).reserve_pct == UNKNOWN_PCT


def test_a_plan_that_changes_clocks_seldom_needs_no_more() -> None:
    often = plans_of(varying(0.02))
    seldom = plans_of(varying(0.02), switching=Switching(budget=ChangeBudget(1.0)))
    assert 0.0 <= seldom.reserve_pct < often.reserve_pct
    assert slowdown_pct(seldom, 0.02) < 2 * ALLOWED_PCT


def test_loads_that_differ_ask_for_all_the_slack_that_they_take() -> None:
    """Beside a heavier stage there is slack on average, and none where a microbatch is long."""
    alike, unequal = (plans_of(replace(varying(0.001), size_variation=share)) for share in (0.0, 0.4))
    assert alike.reserve_pct <= CANDIDATES_PCT[-1] < unequal.reserve_pct
    assert unequal.variation_slowdown_pct is not None
    assert unequal.variation_slowdown_pct <= ALLOWED_PCT
    assert unequal.scatter_pct is not None
    assert alike.scatter_pct is not None
    assert unequal.scatter_pct > 10.0 * alike.scatter_pct
    assert unequal.plan(0).saving_pct < alike.plan(0).saving_pct
