"""Idle times of ranks: what may wait at a low clock, by orders written by hand."""

from dataclasses import replace

import numpy as np
import pytest
from schedules import schedule
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import OPENING, build, clock_requests, verify
from perseus_ds.plan.clock_requests import play
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.waits import BEGINNING, Idle, idles
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook

FIXED = {(0, Kind.LOAD): 0.1, (0, Kind.REDUCE_GRADS): 0.2, (0, Kind.STEP): 0.3, (1, Kind.STEP): 0.3}


def of_rank_0(order: str) -> list[Idle]:
    whole = schedule(order, "1F0 1B0", microbatches=1)
    return [idle for idle in idles(whole, FIXED) if idle.rank == 0]


@pytest.mark.parametrize(
    ("order", "idle"),
    [
        ("0F0 0SA0 0L0 0RG0 0B0 0OS0", Idle(0, 0, 0, 1)),  # transfers and loading in between
        ("0L0 0F0 0B0 0AR0 0OS0", Idle(0, 1, 1, None, first_s=0.2, last_s=0.3)),  # the end, until all step
        ("0L0 0F0 0B0 0AR0 0OS0", Idle(0, 4, BEGINNING, 0, first_s=0.1)),  # the beginning, once it has loaded
        ("0F0 0B0", Idle(0, 1, 1, 0, again=True)),  # without a step the next iteration ends it
    ],
)
def test_where_a_rank_is_idle(order: str, idle: Idle) -> None:
    assert idle in of_rank_0(order)


def test_a_reduction_leaves_the_clock_alone_where_others_wait_for_it() -> None:
    assert all(idle.until != 1 for idle in of_rank_0("0F0 0AR0 0B0 0OS0"))
    assert all(idle.position != 1 for idle in of_rank_0("0F0 0B0 0RT0 0AR0 0OS0"))


@pytest.mark.parametrize(
    ("idle", "span_s"),
    [
        (Idle(0, 0, 0, 1), (2.0, 5.0)),
        (Idle(0, 1, 1, 0, again=True), (7.0, 21.0)),
        (Idle(0, 1, 1, None, first_s=0.2, last_s=0.3), (7.2, 19.7)),
        (Idle(0, 4, BEGINNING, 0, first_s=0.1), (0.1, 1.0)),
    ],
)
def test_spans(idle: Idle, span_s: tuple[float, float]) -> None:
    """One computation from 1 to 2 s, one from 5 to 7 s, in an iteration of 20 s."""
    found = idle.span_s(np.array([1.0, 5.0]), np.array([2.0, 7.0]), np.array(20.0))
    assert tuple(float(moment) for moment in found) == pytest.approx(span_s)


def test_ranks_behind_the_first_begin_and_end_low_until_all_step_or_the_first_computation() -> None:
    whole = textbook("1f1b", stages=4, microbatches=4)
    orders = [
        (*order, Instruction.parse(f"{rank}AR0"), Instruction.parse(f"{rank}OS0"))
        for rank, order in enumerate(whole.orders)
    ]
    fixed_s = {(rank, kind): 0.02 for rank in range(4) for kind in (Kind.REDUCE_GRADS, Kind.STEP)}
    measured = textbook_profile([1.0, 1.1, 1.2, 1.3])
    profile = replace(measured, blocking_w={1410: 70.0, 300: 50.0}, fixed_s=fixed_s)
    switching = Switching(ClockChange(0.002, 0.01, 0.005), waits="automatic")
    timed = Schedule(whole.name, whole.microbatches, tuple(orders))
    plans = build(profile, timed, blocking_power_w=70.0, switching=switching)
    assert verify(plans) == len(plans)
    plan = plans.plan(0)
    low = {(idle.rank, idle.position) for rank in range(4) for idle in plan.low_waits(rank)}
    last = len(plans.computations_of(3)) - 1
    assert {(rank, position) for rank in (1, 2, 3) for position in (BEGINNING, last)} <= low
    assert (0, BEGINNING) not in low
    own = [one for one in play(plan) if one.parts and one.instruction.stage == 3]
    requests = clock_requests(plan, 3, plans.change)
    down, up = (r for r in requests if r.over and r.position == len(own) - 1)
    assert (down.clock_mhz, down.offset_s) == (300, pytest.approx(0.02))
    assert own[-1].end_s + up.offset_s + 0.012 < plan.iteration_time_s - 0.02
    assert up.clock_mhz == own[0].parts[0].clock_mhz
    down, up = (r for r in requests if r.position == OPENING)
    assert (down.clock_mhz, down.offset_s) == (300, 0.0)
    assert up.offset_s + 0.012 < own[0].start_s
    assert up.clock_mhz == own[0].parts[0].clock_mhz
