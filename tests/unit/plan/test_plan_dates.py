"""Plans of iterations that are seen as wholes: dates, what they cost where they are missed, audits."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import SolverError
from perseus_ds.plan import FrequencyPlan, PlanSet, build
from perseus_ds.plan.clock_requests import OPENING, ClockRequest, clock_requests, play
from perseus_ds.plan.file import dumps, loads
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget
from perseus_ds.plan.select import faster_plan, select
from perseus_ds.plan.verify import check_budget, verify
from perseus_ds.schedule import textbook
from perseus_ds.simulation import emulator as emulation
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator, means
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, STAGES, gpt3_profile

CHANGE = ClockChange(call_s=0.005, settle_up_s=0.02, settle_down_s=0.01)
OFF_S = 0.02


@functools.cache
def planned(microbatches: int = 12, *, order: str = "1f1b", dated: bool = True) -> PlanSet:
    schedule = textbook(order, stages=STAGES, microbatches=microbatches)
    budget = ChangeBudget(dated=True) if dated else ChangeBudget(0.0)
    switching, waiting_w = Switching(CHANGE, split="never", budget=budget), BLOCKING_POWER_W
    return build(gpt3_profile(), schedule, blocking_power_w=waiting_w, reserve_pct=1.0, switching=switching)


def chosen(slower_pct: float, plans: PlanSet | None = None) -> FrequencyPlan:
    return select(plans or planned(), Objective(policy="max_slowdown", max_slowdown_pct=slower_pct))


def played(plan: FrequencyPlan, iterations: int, always: int, noise: float = 0.0) -> tuple[float, float]:
    """Mean time and energy of an iteration."""
    shape = ClusterShape(change=CHANGE, waiting_w=BLOCKING_POWER_W)
    emulator = Emulator(plan.of, gpt3_profile(), shape, conditions=Conditions(noise=noise, seed=1))
    return means(emulator.play(iterations, always=always))


def test_a_gpu_goes_down_once_and_up_again_for_the_next_iteration() -> None:
    plan = chosen(0.1)
    asked = [clock_requests(plan, rank, CHANGE) for rank in range(STAGES)]
    assert {len(own) for own in asked} <= {0, 2}
    for down, up in filter(None, asked):
        assert down.position == up.position == OPENING
        assert down.clock_mhz < up.clock_mhz
        assert 0.0 <= down.offset_s < up.offset_s < plan.iteration_time_s


def test_a_clock_keeps_clear_of_the_computations_that_want_the_higher_one() -> None:
    """Dates keep 20 ms and 2 % of the time since the beginning clear: by so much may planned times be off."""
    plan = chosen(0.1)
    for rank in range(STAGES):
        mine = {instruction for _, instruction in plan.of.computations_of(rank)}
        own = [one for one in play(plan) if one.instruction in mine]
        low = [one for one in own if one.clock_mhz != own[0].clock_mhz]
        if not (requests := clock_requests(plan, rank, CHANGE)):
            assert not low
            continue
        changes = zip(requests, ((1410, 1200), (1200, 1410)), strict=True)
        down_s, up_s = (one.offset_s + CHANGE.latency_s(*clocks) for one, clocks in changes)
        after = own[own.index(low[-1]) + 1]
        assert down_s == pytest.approx(low[0].start_s + OFF_S)
        assert up_s == pytest.approx(after.start_s - max(OFF_S, 0.02 * after.start_s))


@pytest.mark.parametrize("slower_pct", [0.1, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_changes_may_be_20_ms_off(monkeypatch: pytest.MonkeyPatch, slower_pct: float, noise: float) -> None:
    plan, random = chosen(slower_pct), np.random.default_rng(0)

    def lasts_s(*ways: tuple[float, float]) -> float:
        def off(*arguments: Any, **keywords: Any) -> tuple[ClockRequest, ...]:  # noqa: ANN401
            by_s = ways[random.integers(len(ways))]
            requests = zip(clock_requests(*arguments, **keywords), by_s, strict=False)
            return tuple(replace(one, offset_s=max(0.0, one.offset_s + own_s)) for one, own_s in requests)

        monkeypatch.setattr(emulation, "clock_requests", off)
        return played(plan, 6, plan.index, noise)[0]

    in_time_s = lasts_s((0.0, 0.0))
    every = [(down_s, up_s) for down_s in (-OFF_S, OFF_S) for up_s in (-OFF_S, OFF_S)]
    for ways in (*([one] for one in every), every):
        assert lasts_s(*ways) <= 1.001 * in_time_s


def test_dates_save_at_no_loss_of_time_what_one_clock_does_not() -> None:
    plan, one_clock = chosen(0.0), chosen(0.0, planned(dated=False))
    assert one_clock.saving_pct < 1.0
    assert plan.saving_pct > 8.0
    default, dated = (played(plan, 4, which) for which in (DEFAULT_CLOCKS, plan.index))
    assert dated[0] <= 1.0005 * default[0]
    assert dated[1] <= 0.92 * default[1]


def test_the_file_keeps_the_dates_and_a_third_change_is_refused() -> None:
    plans = planned()
    assert loads(dumps(plans)).budget == ChangeBudget(dated=True)
    check_budget(plans)
    other = plans.choice.copy()
    other[0, 5] = (other[0, 5] + 3) % 20
    with pytest.raises(SolverError, match="more often"):
        check_budget(replace(plans, choice=other))


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_short_schedules_are_planned(order: str, microbatches: int) -> None:
    plans = planned(microbatches, order=order)
    assert verify(plans) == len(plans)
    assert all(len(clock_requests(plans.plan(0), rank, CHANGE)) in {0, 2} for rank in range(STAGES))


# A faster plan by an audit.


def test_a_plan_as_slow_as_allowed_is_kept_and_the_fastest_is_the_last_resort() -> None:
    plan = chosen(1.0)
    assert faster_plan(plan.of, plan.index, 0.98, 1.0) == plan.index
    assert faster_plan(plan.of, plan.index, 9.0, 1.0) == 0


@pytest.mark.parametrize("measured_pct", [1.05, 1.5], ids=["in proportion", "by the same time"])
def test_a_slower_one_gives_way_to_a_faster_by_the_worse_of_two_readings(measured_pct: float) -> None:
    plan = chosen(1.0)
    plans, planned_pct = plan.of, plan.slowdown_pct
    following = plans.plan(faster_plan(plans, plan.index, measured_pct, 1.0))
    assert 0 < following.index < plan.index
    most_pct = min(planned_pct - measured_pct + 0.9, planned_pct * 0.9 / measured_pct)
    assert following.slowdown_pct <= most_pct
    assert plans.plan(following.index + 1).slowdown_pct > most_pct


def test_a_job_may_use_dates_where_it_may_be_slower() -> None:
    assert Objective(policy="max_slowdown", max_slowdown_pct=0.1).allows_dates
    assert not Objective(policy="max_slowdown", max_slowdown_pct=0.0).allows_dates
    assert not Objective(policy="max_slowdown", max_slowdown_pct=1.0, changes_per_s=0.0).allows_dates
    assert not Objective().allows_dates
