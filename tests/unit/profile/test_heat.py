"""What a GPU leaks for its temperature, from the powers of one clock measured warm and cool."""

import math

import numpy as np
import pytest

from perseus_ds.profile import CounterTrace, Point
from perseus_ds.profile.estimating.heat import SETTLES_S, USUAL, Heat, leakage_of
from perseus_ds.schedule import Kind

KEY = (0, Kind.FORWARD)


def trace(power_w: list[float], *, from_s: float = 0.0) -> CounterTrace:
    """So many watts in one second after the other."""
    return CounterTrace([from_s + second for second in range(len(power_w) + 1)], [0.0, *np.cumsum(power_w)])


def test_a_gpu_that_always_takes_the_same_is_at_that_power() -> None:
    assert Heat().over(trace([300.0] * 20), 0.0) == pytest.approx(300.0)


def test_heat_follows_power_with_its_time_constant() -> None:
    heat = Heat()
    heat.over(trace([300.0] * 20), 0.0)
    heat.over(trace([100.0] * int(SETTLES_S), from_s=20.0), 20.0)
    assert heat.power_w == pytest.approx(100.0 + 200.0 / math.e, abs=0.1)


def test_steps_that_were_seen_before_count_once() -> None:
    once, twice = Heat(), Heat()
    once.over(trace([300.0] * 5 + [100.0] * 20), 0.0)
    twice.over(trace([300.0] * 5 + [100.0] * 20), 0.0)
    twice.over(trace([300.0] * 5 + [100.0] * 20), 0.0)
    assert twice.power_w == once.power_w


def points(power_w: float, *, se_w: float, time_s: float = 2.0) -> dict[tuple[int, Kind], Point]:
    return {KEY: Point(1410, time_s, power_w * time_s, energy_se_j=se_w * time_s)}


def test_a_sure_measurement_counts_alone() -> None:
    """4 W less after 100 W less: 0.04, whatever the durations."""
    found = leakage_of(points(300.0, se_w=1e-4), points(296.0, se_w=1e-4, time_s=2.1), 100.0)
    assert found.share == pytest.approx(0.04, abs=1e-4)
    assert found.error == pytest.approx(math.sqrt(2) * 1e-4 / 100.0, rel=0.05)


def test_an_unsure_one_counts_half_where_it_is_as_unsure_as_what_is_known() -> None:
    """Its error is that of both powers over 100 W: 0.015, as `USUAL`'s."""
    se_w = 1.5 / math.sqrt(2)
    found = leakage_of(points(300.0, se_w=se_w), points(295.0, se_w=se_w), 100.0)
    assert found.share == pytest.approx((0.05 + 0.03) / 2)
    assert found.error == pytest.approx(0.015 / math.sqrt(2))


def test_without_a_second_measurement_the_usual_is_left() -> None:
    assert leakage_of(points(300.0, se_w=0.1), points(300.0, se_w=0.1), 0.0) == USUAL
