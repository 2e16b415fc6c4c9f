"""A counter that looks at a quarter of its period: what it did not see is not blamed on what ran then."""

import numpy as np
import pytest

from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.profile.estimate import WHOLE, Sampling, best_sampling, estimate
from perseus_ds.schedule import Instruction, Kind

PERIOD_S = 0.1
FORWARD_W, BACKWARD_W, WAITING_W = 380.0, 400.0, 80.0
POWER_W = {Kind.FORWARD: FORWARD_W, Kind.BACKWARD: BACKWARD_W}


def one_wait_behind_every_forward(iterations: int = 40) -> list[Interval]:
    """Backwards follow forwards after a wait: a counter read late takes waiting for forwards, always."""
    intervals, now_s = [], 0.05
    for index in range(iterations):
        for kind, lasts_s, wait_s in ((Kind.FORWARD, 0.283, 0.171), (Kind.BACKWARD, 0.561, 0.0)):
            intervals.append(Interval(Instruction(0, kind, index), now_s, now_s + lasts_s))
            now_s += lasts_s + wait_s
    return intervals


def seen_by(sampling: Sampling, intervals: list[Interval]) -> Window:
    """What such a counter says, without noise."""
    ticks_s = np.arange(0.0, intervals[-1].end_s, PERIOD_S)
    steps_j = np.full(len(ticks_s) - 1, WAITING_W * PERIOD_S)
    for kind, power_w in POWER_W.items():
        busy_s = sampling.busy_s([i for i in intervals if i.kind is kind], ticks_s)
        steps_j += (power_w - WAITING_W) * busy_s
    trace = CounterTrace(ticks_s.tolist(), np.concatenate([[0.0], steps_j.cumsum()]).tolist())
    return Window(1000, 0.0, intervals[-1].end_s, tuple(intervals), trace)


@pytest.mark.parametrize("lag", [-0.2, 0.0, 0.14, 0.3])
@pytest.mark.parametrize("width", [0.25, 0.5])
def test_powers_are_the_true_ones_whenever_in_its_period_the_counter_looks(width: float, lag: float) -> None:
    found = estimate(seen_by(Sampling(width, lag), one_wait_behind_every_forward()))
    for (_, kind), point in found.points.items():
        assert point.energy_j / point.time_s == pytest.approx(POWER_W[kind], rel=0.003)
    assert found.blocking_power_w == pytest.approx(WAITING_W, rel=0.02)


def test_what_chance_explains_as_well_changes_nothing() -> None:
    assert best_sampling(lambda one: 100.0 if one == WHOLE else 99.0, steps=50) == WHOLE
    assert best_sampling(lambda one: 100.0 if one == WHOLE else 50.0, steps=50) != WHOLE
