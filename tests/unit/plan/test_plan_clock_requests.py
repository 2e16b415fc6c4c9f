"""Requests of a plan, played on paper with the model of a change: what the plan wants is in force in time."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange, queue_call
from perseus_ds.plan import OPENING, ClockRequest, build, clock_requests, opening_clocks
from perseus_ds.plan.clock_requests import Part, Played, play, requests_of
from perseus_ds.plan.problem import Split, Switching
from perseus_ds.plan.record import FrequencyPlan
from perseus_ds.schedule import Instruction, Kind, textbook

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
def test_a_lower_clock_that_is_over_before_it_is_in_force_is_not_asked_for(
    slow_s: float, asked_mhz: list[int]
) -> None:
    """Asked for after the higher one that follows it, it would hold for the whole computation."""
    whole = Played(Instruction(0, Kind.FORWARD, 0), 0.0, 0.1, 1.0, (Part(1410, 0.1, 1.0),))
    parts = Part(1005, slow_s, 0.1), Part(1410, 0.1, 1.0)
    split = Played(Instruction(0, Kind.BACKWARD, 0), 0.1, 0.1 + slow_s, 1.1, parts)
    asked = requests_of([whole, split], split.end_s, ClockChange(0.001, 0.001, 0.001))
    assert [request.clock_mhz for request in asked] == asked_mhz
