"""A plan stands at exactly the time of all clocks at maximum, also where the fastest plan is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import build, select
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.textbook_gpu import textbook_profile


def throttled() -> Profile:
    """The highest clock is 3 % slower than the next one: a power cap throttles it."""
    known = textbook_profile([1.0, 1.1, 0.9])
    points = {
        key: (replace(own[0], time_s=1.03 * own[1].time_s), *own[1:]) for key, own in known.points.items()
    }
    return replace(known, points=points)


@pytest.mark.parametrize("latency_s", [0.0, 0.002])
def test_the_plan_that_loses_no_time_takes_all_the_time_there_is(latency_s: float) -> None:
    plans = build(
        throttled(),
        textbook("1f1b", stages=3, microbatches=6),
        blocking_power_w=70.0,
        switching=Switching(ClockChange.of_latency(latency_s)),
    )
    assert plans.t_min_s < 0.99 * plans.baseline.iteration_time_s
    chosen = select(plans, Objective())
    assert chosen.iteration_time_s == pytest.approx(plans.baseline.iteration_time_s, rel=1e-6)
    assert plans.waiting_gap_pct[chosen.index] < 1e-3
