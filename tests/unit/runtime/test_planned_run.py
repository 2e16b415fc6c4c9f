"""Clocks of a plan are compared with those of the GPU before any is requested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from schedules import two_plans

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PlanError
from perseus_ds.plan.record import PlanSet, Segment
from perseus_ds.plan.waits import WaitClock
from perseus_ds.runtime.planned_run import check_clocks

PLANS = two_plans()
CLOCKS = tuple(sorted({int(c) for own in PLANS.options.values() for c in own.clock_mhz}, reverse=True))


def checked(plans: PlanSet, clocks: tuple[int, ...] = CLOCKS, memory: tuple[int, ...] = ()) -> None:
    able = Capabilities(
        clocks, memory, can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.0
    )
    for rank in range(plans.schedule.ranks):
        check_clocks(plans, rank, able, where=Path("run"))


def test_clocks_of_the_grid_pass() -> None:
    checked(PLANS)
    checked(PLANS, (*CLOCKS, 210))


def test_a_clock_that_the_gpu_has_not_is_named() -> None:
    with pytest.raises(PlanError, match=rf"rank 0.*{CLOCKS[0]} MHz"):
        checked(PLANS, CLOCKS[1:])


def test_the_clock_of_waits_counts_too() -> None:
    low = replace(PLANS, wait_clock=WaitClock(345, 10.0, 20.0, ClockChange()))
    with pytest.raises(PlanError, match="345 MHz"):
        checked(low)
    checked(low, (*CLOCKS, 345))


def test_memory_clocks_of_timelines_count_too() -> None:
    key, own = next(iter(PLANS.options.items()))
    lasts_s = float(own.time_s[0])
    line = (Segment(CLOCKS[0], 810, lasts_s),)
    with_memory = replace(
        own, time_s=[*own.time_s, lasts_s], energy_j=[*own.energy_j, 1.0], timelines=(line,)
    )
    plans = replace(PLANS, options={**PLANS.options, key: with_memory})
    with pytest.raises(PlanError, match=rf"{CLOCKS[0]} MHz.*810 MHz"):
        checked(plans)
    checked(plans, memory=(1593, 810))
