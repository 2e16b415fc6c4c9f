"""Requests of a plan, played on paper with the model of a change: what the plan wants is in force in time."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from schedules import schedule
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange, queue_call
from perseus_ds.plan import build
from perseus_ds.plan.clock_requests import (
    OPENING,
    ClockRequest,
    Part,
    Played,
    clock_requests,
    opening_clocks,
    play,
    requests_of,
)
from perseus_ds.plan.problem import Split, Switching
from perseus_ds.plan.record import FrequencyPlan
from perseus_ds.plan.verify import verify
from perseus_ds.plan.waits import BEGINNING, Idle, idles
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook

LOW_MHZ = 300
CHANGES = [
    ClockChange(),
    ClockChange(call_s=0.004, settle_up_s=0.006, settle_down_s=0.006),
    ClockChange(call_s=0.004, settle_up_s=0.03, settle_down_s=0.003),
    ClockChange(call_s=0.002, settle_up_s=0.002, settle_down_s=0.02),
]


@functools.cache
def planned(change: ClockChange, split: Split = "automatic") -> FrequencyPlan:
    schedule = textbook("1f1b", stages=4, microbatches=6)
    profile = replace(textbook_profile([1.0, 1.1, 1.2, 1.3]), blocking_w={1410: 70.0, LOW_MHZ: 50.0})
    switching = Switching(change, split, waits="automatic")
    plans = build(profile, schedule, blocking_power_w=70.0, switching=switching)
    return plans.plan(len(plans) // 3)


def own_of(plan: FrequencyPlan, rank: int) -> list[Played]:
    mine = {instruction for _, instruction in plan.of.computations_of(rank)}
    return [one for one in play(plan) if one.instruction in mine]


def asked_at_s(own: list[Played], request: ClockRequest) -> float:
    if request.position == OPENING:
        return request.offset_s
    one = own[request.position]
    return request.offset_s + (one.end_s if request.over else one.start_s)


def in_force(plan: FrequencyPlan, rank: int, change: ClockChange) -> list[tuple[float, int]]:
    """When which clock is in force, over three iterations one behind the other."""
    own, free_s, at_s = own_of(plan, rank), -math.inf, -math.inf
    now_mhz, _ = opening_clocks(plan, rank, clock_requests(plan, rank, change))
    changes = [(-1.0, now_mhz)]
    for iteration in range(3):
        for request in clock_requests(plan, rank, change):
            asked_s = iteration * plan.iteration_time_s + asked_at_s(own, request)
            latency_s = change.latency_s(now_mhz, request.clock_mhz)
            free_s, _, at_s = queue_call(asked_s, free_s, -math.inf, at_s, change.call_s, latency_s, 0.0)
            changes.append((at_s, request.clock_mhz))
            now_mhz = request.clock_mhz
    return changes


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rank", range(4))
def test_every_part_runs_at_its_clock_to_within_a_call(change: ClockChange, rank: int) -> None:
    plan = planned(change)
    changes, own = in_force(plan, rank, change), own_of(plan, rank)
    asked_s = [asked_at_s(own, request) for request in clock_requests(plan, rank, change)]
    assert all(after_s >= before_s + change.call_s - 1e-9 for before_s, after_s in pairwise(asked_s))
    for iteration in (1, 2):
        for one in own:
            start_s = iteration * plan.iteration_time_s + one.start_s
            for part in one.parts:
                middle_s = start_s + 0.5 * part.duration_s
                clock_mhz = [mhz for at_s, mhz in changes if at_s <= middle_s + 1e-9][-1]
                assert clock_mhz == part.clock_mhz
                start_s += part.duration_s


@pytest.mark.parametrize("change", CHANGES)
def test_a_low_wait_is_low_for_as_long_as_the_plan_counts_on(change: ClockChange) -> None:
    plan, waits = planned(change), planned(change).of.waits
    its = waits.plan == plan.index
    mine = dict(zip(waits.column[its].tolist(), waits.low_s[its].tolist(), strict=True))
    assert mine
    for rank in range(4):
        changes = in_force(plan, rank, change)
        for (column, _), one in zip(plan.of.computations_of(rank), own_of(plan, rank), strict=True):
            if column in mine:
                end_s = plan.iteration_time_s + one.end_s
                low_from_s = min(at_s for at_s, mhz in changes if mhz == LOW_MHZ and at_s >= end_s - 1e-9)
                low_to_s = min(at_s for at_s, mhz in changes if mhz != LOW_MHZ and at_s > low_from_s)
                assert low_to_s - low_from_s == pytest.approx(mine[column], abs=1e-6)


LATE_DOWN = ClockChange(call_s=0.004, settle_up_s=0.006, settle_down_s=0.03)


def lowered_late_s(*, on_pace: bool) -> list[tuple[float, float]]:
    """How late each lower clock is in force after the computation it is asked in, and how long that lasts."""
    found, plan = [], planned(LATE_DOWN, "never")
    for rank in range(4):
        own, requests = own_of(plan, rank), clock_requests(plan, rank, LATE_DOWN, on_pace=on_pace)
        now_mhz, _ = opening_clocks(plan, rank, requests)
        for request in requests:
            lower, now_mhz = request.clock_mhz < now_mhz, request.clock_mhz
            if lower and request.position != OPENING:
                at_s = asked_at_s(own, request) + 0.034
                before = max((one for one in own if one.end_s < at_s), key=lambda one: one.end_s)
                found.append((at_s - before.end_s, before.duration_s))
    assert found
    return found


@pytest.mark.thorough
def test_a_lower_clock_is_asked_for_ahead_and_in_force_when_what_runs_before_is_over() -> None:
    """A fiftieth of its duration later, by which it may last longer than planned."""
    late_s = lowered_late_s(on_pace=True)
    assert all(late >= 0.02 * duration - 1e-9 for late, duration in late_s)
    assert min(late - 0.02 * duration for late, duration in late_s) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.thorough
def test_where_all_lasts_longer_or_loads_vary_a_lower_clock_is_asked_for_at_the_end() -> None:
    assert all(late >= 0.034 - 1e-9 for late, _ in lowered_late_s(on_pace=False))
    plan = planned(LATE_DOWN, "never")
    late = clock_requests(plan, 0, LATE_DOWN, on_pace=False)
    for varies, ahead in ((0.0, True), (0.3, False)):
        unequal = replace(plan.of, load_variation=varies).plan(plan.index)
        assert (clock_requests(unequal, 0, LATE_DOWN) != late) is ahead


@pytest.mark.parametrize(("slow_s", "asked_mhz"), [(0.001, [1410]), (0.02, [1005, 1410])])
def test_what_is_over_before_it_is_in_force_is_not_asked_for(slow_s: float, asked_mhz: list[int]) -> None:
    """Asked for after the higher one that follows it, it would hold for the whole computation."""
    whole = Played(Instruction(0, Kind.FORWARD, 0), 0.0, 0.1, 1.0, (Part(1410, 0.1, 1.0),))
    parts = Part(1005, slow_s, 0.1), Part(1410, 0.1, 1.0)
    split = Played(Instruction(0, Kind.BACKWARD, 0), 0.1, 0.1 + slow_s, 1.1, parts)
    asked = requests_of([whole, split], split.end_s, ClockChange(0.001, 0.001, 0.001))
    assert [request.clock_mhz for request in asked] == asked_mhz


# Idle times of ranks: what may wait at a low clock, by orders written by hand.

FIXED = {(0, Kind.LOAD): 0.1, (0, Kind.REDUCE_GRADS): 0.2, (0, Kind.STEP): 0.3, (1, Kind.STEP): 0.3}


def of_rank_0(order: str) -> list[Idle]:
    return [idle for idle in idles(schedule(order, "1F0 1B0", microbatches=1), FIXED) if idle.rank == 0]


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
