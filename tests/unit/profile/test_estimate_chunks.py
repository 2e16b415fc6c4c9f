"""A rank that runs several model stages, with split backwards, measures each of them by itself."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.profile.estimate import estimate
from perseus_ds.schedule import Instruction, Kind, last_backwards, textbook

WAITING_W, PERIOD_S = 80.0, 0.1
TRUTH = {  # watts and seconds of rank 0 of a ZBV pipeline: the first stage and the last, which is heavier
    (0, Kind.FORWARD): (300.0, 0.31),
    (0, Kind.BACKWARD_INPUT): (280.0, 0.37),
    (0, Kind.BACKWARD_WEIGHT): (330.0, 0.29),
    (3, Kind.FORWARD): (320.0, 0.53),
    (3, Kind.BACKWARD_INPUT): (290.0, 0.61),
    (3, Kind.BACKWARD_WEIGHT): (310.0, 0.43),
}
ORDER = textbook("zbv", stages=4, microbatches=6).orders[0]


def window(*, iterations: int, waits_in: frozenset[Instruction] = frozenset(), wait_s: float = 0.0) -> Window:
    """Run the order with gaps that differ; instructions in ``waits_in`` wait at their end."""
    runs: list[Interval] = []
    now_s, ticks_s, power_w = 0.0, [0.0], []
    for step, instruction in enumerate(ORDER * iterations):
        watts, seconds = TRUTH[instruction.stage, instruction.kind]
        waits_s = wait_s if instruction in waits_in else 0.0
        runs.append(Interval(instruction, now_s, now_s + seconds + waits_s))
        for lasting_s, drawn_w in ((seconds, watts), (waits_s + 0.01 * (step % 7), WAITING_W)):
            now_s += lasting_s
            ticks_s.append(now_s)
            power_w.append(drawn_w)
    seen_s = np.arange(0.0, now_s, PERIOD_S)
    energy_j = np.concatenate([[0.0], np.cumsum(np.array(power_w) * np.diff(ticks_s))])
    trace = CounterTrace(seen_s, np.interp(seen_s, ticks_s, energy_j))
    return Window(1200, 0.0, now_s, tuple(runs), trace)


def test_every_stage_and_kind_gets_its_own_time_and_power() -> None:
    found = estimate(window(iterations=4))
    assert set(found.points) == set(TRUTH)
    for computation, (watts, seconds) in TRUTH.items():
        assert found.points[computation].time_s == pytest.approx(seconds)
        assert found.points[computation].energy_j == pytest.approx(watts * seconds, rel=0.02)
    assert found.blocking_power_w == pytest.approx(WAITING_W, rel=0.02)


def without(seen: Window, left_out: frozenset[Instruction]) -> Window:
    """Have it known that some instructions contain a wait."""
    return replace(seen, intervals=tuple(replace(i, waits=i.instruction in left_out) for i in seen.intervals))


def test_what_contains_a_wait_is_left_out_of_time_and_power() -> None:
    last = last_backwards(ORDER)
    waiting = window(iterations=4, waits_in=last, wait_s=2.0)
    left, kept = estimate(without(waiting, last)), estimate(waiting)
    for computation in {(i.stage, i.kind) for i in last}:
        watts, seconds = TRUTH[computation]
        assert left.points[computation].time_s == pytest.approx(seconds)
        assert left.points[computation].energy_j == pytest.approx(watts * seconds, rel=0.02)
        assert left.points[computation].samples == 5 * 4
        assert kept.points[computation].time_s > 1.2 * seconds


def test_a_computation_that_always_waits_keeps_its_runs() -> None:
    every = frozenset(i for i in ORDER if i.kind is Kind.BACKWARD_WEIGHT and i.stage == 0)
    found = estimate(without(window(iterations=4), every))
    assert found.points[0, Kind.BACKWARD_WEIGHT].samples == 6 * 4
