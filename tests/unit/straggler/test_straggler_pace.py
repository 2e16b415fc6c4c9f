"""Who is behind its plan, and what a straggler loses by clocks that are asked for ahead: nothing."""

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.problem import Switching
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Emulator, parse_straggler
from perseus_ds.straggler.replica_plans import Pace

CHANGE = ClockChange(call_s=0.004, settle_up_s=0.006, settle_down_s=0.016)
PROFILE = textbook_profile([1.0, 1.1, 1.2, 1.3])


def told(pace: Pace, *ratios: list[float]) -> list[bool]:
    for ratio in ratios:
        pace.observe(np.array(ratio))
    return pace.behind.tolist()


def test_twice_in_a_row_behind_is_behind_and_twice_on_time_is_not() -> None:
    pace = Pace(2)
    assert told(pace, [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.0], [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.1]) == [False, True]
    assert told(pace, [1.0, 1.0]) == [False, True]
    assert told(pace, [1.01, 1.01]) == [False, False]


def test_what_is_not_known_says_nothing() -> None:
    pace = Pace(1)
    assert told(pace, [1.2], [np.nan], [0.0], [1.2]) == [True]
    assert told(pace, [np.nan], [np.nan]) == [True]


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    schedule = textbook("1f1b", stages=4, microbatches=8)
    return build(
        PROFILE, schedule, blocking_power_w=70.0, switching=Switching(CHANGE, split="never"), reserve_pct=0.0
    )


def slower_pct(plans: PlanSet, straggler: str, *, iterations: int, first: int) -> float:
    """Slowdown of iterations, against default clocks, beside the same straggler."""
    emulator = Emulator(plans, PROFILE, ClusterShape(change=CHANGE))
    trouble = [parse_straggler(straggler)]
    ours, default = (
        emulator.play(iterations, trouble, always=plan).job_s[first:].sum() for plan in (0, DEFAULT_CLOCKS)
    )
    return 100.0 * float(ours / default - 1.0)


@pytest.mark.thorough
def test_a_slow_pipeline_is_not_slowed_further(plans: PlanSet) -> None:
    assert slower_pct(plans, "slow:pipeline=0,factor=1.2", iterations=12, first=6) == pytest.approx(
        0, abs=0.01
    )
