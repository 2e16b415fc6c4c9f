"""Jobs so small that every second and joule of the emulator is counted by hand.

A forward takes 1 s at 1000 MHz (100 W) and 2 s at 500 (75 W), a backward 2 s (100 W) and 4 s (40 W).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, Splits, build
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook
from perseus_ds.simulation.cluster import tables_of
from perseus_ds.simulation.emulator import (
    DEFAULT_CLOCKS,
    ClusterShape,
    Conditions,
    Emulator,
    Straggler,
    means,
    parse_straggler,
)
from perseus_ds.straggler.controller import Cause

pytestmark = pytest.mark.thorough

WAITING_W = 10.0
FORWARD = (Point(1000, 1.0, 100.0), Point(500, 2.0, 150.0))
BACKWARD = (Point(1000, 2.0, 200.0), Point(500, 4.0, 160.0))
WORKING, BARRIER, PEERS = "working", "waiting for other pipelines", "waiting for tensor peers"


def profile(stages: int, fixed_s: Mapping[Computation, float] | None = None) -> Profile:
    points = {
        (stage, kind): own
        for stage in range(stages)
        for kind, own in ((Kind.FORWARD, FORWARD), (Kind.BACKWARD, BACKWARD))
    }
    return Profile(points, blocking_power_w=WAITING_W, fixed_s=fixed_s or {})


def job(
    cluster: ClusterShape, *, stages: int = 1, fixed_s: Mapping[Computation, float] | None = None
) -> tuple[PlanSet, Emulator]:
    """One microbatch through one stage or more."""
    measured = profile(stages, fixed_s)
    schedule = textbook("1f1b", stages=stages, microbatches=1)
    plans = build(measured, schedule, blocking_power_w=WAITING_W)
    return plans, Emulator(plans, measured, cluster)


def slow_backward(plans: PlanSet) -> int:
    """The plan with a forward at 1000 MHz and a backward at 500."""
    return next(i for i in range(len(plans)) if plans.plan(i).clocks_of_stage(0) == [1000, 500])


def test_tensor_peers_wait_for_the_slowest_of_them() -> None:
    """One GPU of two is half as fast: the other waits as long as it works, at 10 W."""
    _, emulator = job(ClusterShape(tensor=2))
    slow = parse_straggler("slow:pipeline=0,gpu=1,factor=2")
    found = emulator.play(1, [slow], always=DEFAULT_CLOCKS)
    assert found.job_s[0] == pytest.approx(6.0)
    assert found.by_cause_j[PEERS] == pytest.approx(3.0 * WAITING_W)
    assert found.by_cause_j[WORKING] == pytest.approx(300.0 + 600.0)


def test_a_rank_goes_on_when_its_last_gpu_is_done_though_a_clock_fell_meanwhile() -> None:
    """Down at 1.02 s, in the forward of the slow GPU: 1.02 of its 2 s are done, the rest takes 1.96 s.

    Up is asked for 3.5 s after its backward began and there at 4 s, halfway: 2 s more at the high clock.
    """
    change = ClockChange(call_s=0.1, settle_down_s=0.4, settle_up_s=0.4)
    plans, emulator = job(ClusterShape(tensor=2, change=change))
    slow = parse_straggler("slow:pipeline=0,gpu=1,factor=2")
    found = emulator.play(1, [slow], always=slow_backward(plans))
    assert found.job_s[0] == pytest.approx(1.02 + 1.96 + 4.0 + 2.0)


def test_a_bad_link_delays_what_is_sent_over_it_and_nothing_else() -> None:
    """Forward and backward of two stages, one after another: once down and once up the pipeline."""
    _, emulator = job(ClusterShape(), stages=2)
    link = parse_straggler("link:pipeline=0,seconds=0.25")
    assert emulator.play(1, [link], always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(6.0 + 2 * 0.25)
    first = parse_straggler("link:pipeline=0,rank=0,seconds=0.25")
    assert emulator.play(1, [first], always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(6.0 + 0.25)


def test_each_direction_settles_in_its_own_time() -> None:
    """Up takes 0.5 s and down nothing, for who believes that both are free: the next forward begins slowly.

    Of it 0.5 s pass at 500 MHz: a quarter of the work; the rest takes 0.75 s.
    """
    change = ClockChange(settle_up_s=0.5)
    plans, emulator = job(ClusterShape(change=change, reckoned=ClockChange()))
    found = emulator.play(3, always=slow_backward(plans))
    assert found.job_s.tolist() == pytest.approx([5.0, 5.25, 5.25])


def test_a_job_asks_ahead_by_what_it_believes_and_not_by_the_truth() -> None:
    """Half a second that nobody reckoned with: a quarter of the backward is done at the high clock."""
    change = ClockChange(call_s=0.1, settle_down_s=0.4)
    plans, emulator = job(ClusterShape(change=change, reckoned=ClockChange()))
    found = emulator.play(1, always=slow_backward(plans))
    assert found.job_s[0] == pytest.approx(1.0 + 0.5 + 0.75 * 4.0)
    assert found.energy_j[0].sum() == pytest.approx(100.0 + 0.5 * 100.0 + 3.0 * 40.0)


def test_waiting_for_other_pipelines_takes_what_the_clock_in_force_takes() -> None:
    """At the high clock 10 W for 3 of 6 s; capped at the low one 4 W for 3 of 9 s."""
    _, emulator = job(ClusterShape(pipelines=2, waiting_w={1000: 10.0, 500: 4.0}))
    slow = parse_straggler("slow:pipeline=1,factor=2")
    found = emulator.play(1, [slow], always=DEFAULT_CLOCKS)
    assert found.by_cause_j[BARRIER] == pytest.approx(3.0 * 10.0)
    slower = parse_straggler("slow:pipeline=1,factor=3")
    capped = parse_straggler("cap:pipeline=0,mhz=500")
    found = emulator.play(1, [slower, capped], always=DEFAULT_CLOCKS)
    assert found.by_cause_j[BARRIER] == pytest.approx(3.0 * 4.0)


def test_ranks_meet_for_the_norm_after_all_reductions_and_step_after_it() -> None:
    """Rank 0 is done at 6 s and reduces in 0.1 s, rank 1 at 4 s and in 3 s: all step from 7 s on."""
    fixed_s = {
        (0, Kind.REDUCE_GRADS): 0.1,
        (1, Kind.REDUCE_GRADS): 3.0,
        (0, Kind.STEP): 0.5,
        (1, Kind.STEP): 0.2,
    }
    orders = [
        [Instruction(rank, kind, 0) for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS, Kind.STEP)]
        for rank in range(2)
    ]
    schedule = Schedule("by hand", 1, tuple(map(tuple, orders)))
    plans = build(profile(2, fixed_s), schedule, blocking_power_w=WAITING_W)
    emulator = Emulator(plans, profile(2, fixed_s), ClusterShape())
    assert emulator.play(1, always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(7.0 + 0.5)


def test_a_cap_on_a_clock_of_the_grid_leaves_that_clock() -> None:
    _, emulator = job(ClusterShape())
    for mhz, seconds in ((1000, 3.0), (999, 6.0), (500, 6.0)):
        cap = parse_straggler(f"cap:pipeline=0,mhz={mhz}")
        assert emulator.play(1, [cap], always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(seconds)


def test_a_gpu_without_a_rank_is_one_of_the_first_rank() -> None:
    slow = Straggler(kind="slow", pipeline=0, factor=2.0, gpu=1)
    _, emulator = job(ClusterShape(tensor=2), stages=2)
    assert emulator.play(1, [slow], always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(2 * 3.0 + 3.0)


def test_below_the_lowest_measured_clock_work_follows_the_clock() -> None:
    """Half the clock: twice the time at half the power; between two clocks on the line."""
    tables = tables_of(
        profile(1), [(0, Kind.BACKWARD)], waiting_w={500: 4.0, 1000: 10.0}, clocks_mhz=[250, 750]
    )
    assert tables.clock_mhz.tolist() == [250, 500, 750, 1000]
    assert tables.time_s[0].tolist() == pytest.approx([8.0, 4.0, 3.0, 2.0])
    assert tables.power_w[0].tolist() == pytest.approx([20.0, 40.0, 70.0, 100.0])
    assert tables.waiting_w.tolist() == pytest.approx([4.0, 4.0, 7.0, 10.0])


def test_what_is_announced_is_answered_though_nothing_is_slow() -> None:
    _, emulator = job(ClusterShape(pipelines=3))
    found = emulator.play(8, [parse_straggler("announced:pipeline=1,factor=1.3,from=2")])
    assert [(one.replica, one.cause) for one in found.decisions[-1].stragglers] == [(1, Cause.ANNOUNCED)]
    assert found.decisions[-1].waiting == (0, 2)
    assert found.plan[:4, 0].tolist() == [found.plan[0, 0]] * 4
    assert (found.plan[4:, 0] != found.plan[0, 0]).all(), "iteration 2 decides what 4 plays"


def test_waits_at_low_clocks_take_what_the_plan_says_where_changes_are_free() -> None:
    measured = Profile(profile(4).points, blocking_power_w=WAITING_W, blocking_w={1000: WAITING_W, 500: 4.0})
    schedule = textbook("1f1b", stages=4, microbatches=4)
    plans = build(measured, schedule, blocking_power_w=WAITING_W, switching=Switching(waits="automatic"))
    assert plans.wait_clock is not None
    emulator = Emulator(plans, measured, ClusterShape())
    for index in (0, len(plans) // 2):
        time_s, energy_j = means(emulator.play(3, always=index))
        assert time_s == pytest.approx(plans.iteration_time_s[index], rel=1e-6)
        assert energy_j == pytest.approx(plans.energy_j[index], rel=1e-3)


def test_a_clock_for_the_rest_of_a_computation_is_not_asked_for_once_that_is_over() -> None:
    """Half a forward is planned at the low clock. A quarter of the work is done before: all runs high."""
    measured = profile(1)
    schedule = textbook("1f1b", stages=1, microbatches=1)
    plans = build(measured, schedule, blocking_power_w=WAITING_W)
    plans = replace(
        plans,
        choice=np.zeros_like(plans.choice),
        splits=Splits(np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.uint16), np.array([0.5])),
        iteration_time_s=np.full(len(plans), 3.5),
    )
    for work, lasts_s in ((1.0, 0.5 + 1.0 + 2.0), (0.25, 0.25 + 0.5)):
        found = Emulator(plans, measured, ClusterShape(), conditions=Conditions(work=[work])).play(
            1, always=0
        )
        assert found.job_s[0] == pytest.approx(lasts_s)
