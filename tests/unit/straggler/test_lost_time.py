"""What a job loses to imbalance, by cause: against figures that stand on paper."""

import numpy as np
import pytest

from perseus_ds.plan import build
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook
from perseus_ds.straggler.lost_time import LostTime, lost_to_stages_pct

EVEN = np.array([2.0, 2.0, 2.0, 2.0])


def account(needs_s: np.ndarray, load: np.ndarray | None, slow: dict[int, float]) -> dict[str, float]:
    lost = LostTime()
    for _ in range(8):
        lost.observe(needs_s, load=load, slow=slow)
    return {name.removeprefix("lost_to_").removesuffix("_pct"): pct for name, pct in lost.account.items()}


def test_a_slow_replica_costs_what_its_peers_wait() -> None:
    found = account(np.array([2.0, 2.0, 2.5, 2.0]), None, {2: 1.25})
    assert found == pytest.approx({"workers": 20.0, "scatter": 0.0})


def test_unequal_loads_cost_the_longest_one_above_the_mean() -> None:
    found = account(EVEN, np.array([1.0, 1.0, 1.6, 0.4]), {})
    assert found == pytest.approx({"workers": 0.0, "data": 37.5, "scatter": 0.0})


def test_what_nobody_is_named_for_is_scatter() -> None:
    found = account(np.array([2.0, 2.0, 2.0, 2.1]), None, {})
    assert found == pytest.approx({"workers": 0.0, "scatter": 100.0 * 0.1 / 2.1})


def test_iterations_that_not_all_reported_and_too_few_say_nothing() -> None:
    assert account(np.array([2.0, np.nan, 2.0, 2.0]), None, {}) == {}
    lost = LostTime()
    lost.observe(EVEN, load=None, slow={})
    assert lost.account == {}


def test_a_heavier_stage_costs_what_evening_out_would_gain() -> None:
    """Stages of 1 and 3 s: eight microbatches take the last one 48 s, and the first one 2 beside it."""
    points = {
        (stage, kind): (Point(1000, seconds, 100.0 * seconds),)
        for stage, seconds in enumerate((1.0, 3.0))
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    profile, schedule = Profile(points, blocking_power_w=10.0), textbook("1f1b", stages=2, microbatches=8)
    plans = build(profile, schedule, blocking_power_w=10.0)
    assert lost_to_stages_pct(plans) == pytest.approx(28.0)
