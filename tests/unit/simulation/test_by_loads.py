"""What following loads would save in a job of known lengths: on paper, held against the emulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseus_ds.config import Objective
from perseus_ds.plan import Expected, PlanSet, build, select
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation import textbook_profile
from perseus_ds.simulation.by_loads import saved_by_loads
from perseus_ds.simulation.emulator import (
    DEFAULT_CLOCKS,
    ClusterShape,
    Conditions,
    Emulator,
    means,
    parse_loads,
)

pytestmark = pytest.mark.thorough

WEIGHTS = [1.0, 1.15, 0.9, 1.3]
PROFILE = textbook_profile(WEIGHTS)
SCHEDULE = textbook("1f1b", stages=4, microbatches=6)


def told(variation: float) -> Profile:
    """The same, which knows that loads vary."""
    return replace(textbook_profile(WEIGHTS, variation=0.001), size_variation=variation)


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    return build(told(0.3), SCHEDULE, blocking_power_w=70.0, reserve_pct="auto")


def saved(plans: PlanSet, replicas: int, iterations: int = 20) -> Expected:
    conditions = Conditions(loads=parse_loads("lognormal:0.3", seed=2))
    found = saved_by_loads(plans, PROFILE, ClusterShape(replicas), conditions, iterations=iterations)
    assert isinstance(found, Expected)
    return found


def emulated_pct(plans: PlanSet, replicas: int) -> float:
    """What the plan itself saves in the same iterations."""
    conditions = Conditions(loads=parse_loads("lognormal:0.3", seed=2))
    emulator = Emulator(plans, PROFILE, ClusterShape(replicas), conditions=conditions)
    plan = select(plans, Objective()).index
    ours, default = (means(emulator.play(20, always=one))[1] for one in (plan, DEFAULT_CLOCKS))
    return 100.0 * (1.0 - ours / default)


def test_pacing_saves_what_the_longest_replica_leaves_and_loses_no_time(plans: PlanSet) -> None:
    alone, paced = saved(plans, 1), saved(plans, 8)
    assert alone.saving_pct > emulated_pct(plans, 1) + 5.0
    assert paced.saving_pct > alone.saving_pct + 3.0
    assert paced.slowdown_pct < 0.2


def test_loads_that_are_alike_save_what_the_emulated_plan_saves() -> None:
    alike = build(told(0.0), SCHEDULE, blocking_power_w=70.0)
    conditions = Conditions(loads=parse_loads("buckets:512"))
    emulator = Emulator(alike, PROFILE, ClusterShape(), conditions=conditions)
    plan = select(alike, Objective()).index
    ours, default = (means(emulator.play(5, always=one))[1] for one in (plan, DEFAULT_CLOCKS))
    found = saved_by_loads(alike, PROFILE, ClusterShape(), conditions, iterations=5)
    assert isinstance(found, Expected)
    assert found.saving_pct == pytest.approx(100.0 * (1.0 - ours / default), abs=0.3)
    assert found.slowdown_pct == pytest.approx(0.0, abs=0.05)


def test_what_cannot_follow_loads_says_why(plans: PlanSet) -> None:
    loads = Conditions(loads=parse_loads("lognormal:0.3"))
    few = saved_by_loads(plans, PROFILE, ClusterShape(), loads, iterations=2)
    assert few == "at least 3 iterations are compared"
    seldom = build(PROFILE, SCHEDULE, blocking_power_w=70.0, switching=Switching(budget=ChangeBudget(1.0)))
    assert "only so often" in str(saved_by_loads(seldom, PROFILE, ClusterShape(), loads, iterations=5))
