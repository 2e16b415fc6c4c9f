"""Idle times of ranks: what may wait at a low clock, by orders written by hand."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import OPENING, PlanSet, build, clock_requests, verify
from perseus_ds.plan.clock_requests import play
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.waits import BEGINNING, Idle, idles
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook
from perseus_ds.simulation.textbook_gpu import textbook_profile

FIXED = {(0, Kind.LOAD): 0.1, (0, Kind.REDUCE_GRADS): 0.2, (0, Kind.STEP): 0.3, (1, Kind.STEP): 0.3}


def scheduled(*orders: str) -> Schedule:
    return Schedule("by hand", 1, tuple(tuple(map(Instruction.parse, order.split())) for order in orders))


def of_rank_0(order: str) -> list[Idle]:
    return [idle for idle in idles(scheduled(order, "1F0 1B0"), FIXED) if idle.rank == 0]


def test_between_computations_there_may_be_transfers_and_loading() -> None:
    found = of_rank_0("0F0 0SA0 0L0 0RG0 0B0 0OS0")
    assert Idle(0, 0, 0, 1) in found


def test_a_reduction_in_between_leaves_the_clock_alone() -> None:
    assert all(idle.until != 1 for idle in of_rank_0("0F0 0AR0 0B0 0OS0"))


def test_the_end_is_idle_from_the_reduction_until_all_step() -> None:
    found = of_rank_0("0L0 0F0 0B0 0AR0 0OS0")
    assert Idle(0, 1, 1, None, first_s=0.2, last_s=0.3) in found


def test_the_beginning_is_idle_until_the_first_computation_once_it_has_loaded() -> None:
    found = of_rank_0("0L0 0F0 0B0 0AR0 0OS0")
    assert Idle(0, 4, BEGINNING, 0, first_s=0.1) in found


def test_a_tied_reduction_is_awaited_by_others() -> None:
    assert all(idle.position != 1 for idle in of_rank_0("0F0 0B0 0RT0 0AR0 0OS0"))


def test_without_a_step_the_next_iteration_ends_it() -> None:
    assert of_rank_0("0F0 0B0") == [Idle(0, 0, 0, 1), Idle(0, 1, 1, 0, again=True)]


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


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    """Four stages that load, reduce and step, as jobs do, with low waits."""
    whole = textbook("1f1b", stages=4, microbatches=4)
    orders = tuple(
        (*order, Instruction.parse(f"{rank}AR0"), Instruction.parse(f"{rank}OS0"))
        for rank, order in enumerate(whole.orders)
    )
    fixed_s = {(rank, kind): 0.02 for rank in range(4) for kind in (Kind.REDUCE_GRADS, Kind.STEP)}
    profile = replace(
        textbook_profile([1.0, 1.1, 1.2, 1.3]), blocking_w={1410: 70.0, 300: 50.0}, fixed_s=fixed_s
    )
    change = ClockChange(call_s=0.002, settle_up_s=0.01, settle_down_s=0.005)
    schedule = Schedule(whole.name, whole.microbatches, orders)
    return build(profile, schedule, blocking_power_w=70.0, switching=Switching(change, waits="automatic"))


def test_ranks_behind_the_first_begin_and_end_low(plans: PlanSet) -> None:
    plan = plans.plan(0)
    low = {(idle.rank, idle.position) for rank in range(4) for idle in plan.low_waits(rank)}
    last = len(plans.computations_of(3)) - 1
    assert {(rank, BEGINNING) for rank in (1, 2, 3)} <= low
    assert {(rank, last) for rank in (1, 2, 3)} <= low
    assert (0, BEGINNING) not in low


def test_the_low_clock_at_the_end_is_over_before_all_step(plans: PlanSet) -> None:
    plan = plans.plan(0)
    own = [one for one in play(plan) if one.parts and one.instruction.stage == 3]
    ends = [r for r in clock_requests(plan, 3, plans.change) if r.over and r.position == len(own) - 1]
    down, up = ends
    assert (down.clock_mhz, down.offset_s) == (300, pytest.approx(0.02))
    assert own[-1].end_s + up.offset_s + 0.012 < plan.iteration_time_s - 0.02
    assert up.clock_mhz == own[0].parts[0].clock_mhz


def test_the_low_clock_at_the_beginning_is_over_before_the_first_computation(plans: PlanSet) -> None:
    plan = plans.plan(0)
    first = next(one for one in play(plan) if one.parts and one.instruction.stage == 3)
    down, up = (r for r in clock_requests(plan, 3, plans.change) if r.position == OPENING)
    assert (down.clock_mhz, down.offset_s) == (300, 0.0)
    assert up.offset_s + 0.012 < first.start_s
    assert up.clock_mhz == first.parts[0].clock_mhz


def test_plans_with_low_beginnings_and_ends_are_certified(plans: PlanSet) -> None:
    assert verify(plans) == len(plans)
