"""Timelines of kernels as further options of the planner: cheaper plans, carried, proved and asked for."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange, ClockPair
from perseus_ds.errors import PlanError, ProfileError
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.clock_requests import Part, Played, clock_requests, play, requests_of
from perseus_ds.plan.file import dumps, loads
from perseus_ds.plan.problem import Split, Switching
from perseus_ds.plan.record import (
    AtDefault,
    ClockSegments,
    InstructionTimelines,
    Options,
    TimelineStep,
    read_timelines,
    write_timelines,
)
from perseus_ds.plan.verify import verify
from perseus_ds.schedule import Instruction, Kind, textbook
from perseus_ds.simulation.emulator import ClusterShape, Emulator

pytestmark = pytest.mark.thorough

SCHEDULE = textbook("1f1b", stages=2, microbatches=2)
EVERY_CLOCK = textbook_profile([1.0, 1.1])
PROFILE = replace(EVERY_CLOCK, points={key: points[::3] for key, points in EVERY_CLOCK.points.items()})
MEMORY_MHZ = 810
SPARED_W = {MEMORY_MHZ: 12.5}
CHANGE = ClockChange(0.0, 0.001, 0.001)


def line(stage: int, kind: Kind, slower: float, cheaper: float) -> ClockSegments:
    """Half of the time at the highest clock, half at a low one with a slow memory."""
    fastest = PROFILE.of(stage, kind)[0]
    time_s = fastest.time_s * slower
    steps = (TimelineStep(0, 0.0, ClockPair()), TimelineStep(7, time_s / 2, ClockPair(MEMORY_MHZ, 900)))
    return ClockSegments(time_s, fastest.energy_j * cheaper, steps)


def given(*lines: tuple[float, float]) -> list[InstructionTimelines]:
    """For every instruction of the schedule, how much slower and cheaper than the highest clock."""
    spared_w = tuple(SPARED_W.items())
    return [
        InstructionTimelines(stage, kind, tuple(line(stage, kind, *one) for one in lines), spared_w=spared_w)
        for stage in range(2)
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    ]


@cache
def planned(*lines: tuple[float, float], split: Split = "never") -> PlanSet:
    return built(given(*lines) if lines else [], split)


def built(timelines: list[InstructionTimelines], split: Split = "never") -> PlanSet:
    switching = Switching(CHANGE, split=split)
    plans = build(
        PROFILE, SCHEDULE, blocking_power_w=70.0, reserve_pct=1.0, switching=switching, timelines=timelines
    )
    assert verify(plans) == len(plans)
    return plans


LINES = (1.0, 0.8), (1.2, 0.6)
GOOD = given(*LINES)


@pytest.mark.parametrize("split", ["never", "automatic"])
def test_no_plan_needs_more_than_without_timelines(split: Split) -> None:
    """Timelines that are good for something and such that are good for nothing."""
    without = planned(split=split)
    for lines in (LINES, ((1.5, 1.4),), ((1.05, 0.99),)):
        plans = planned(*lines, split=split)
        for time_s, effective_j in zip(without.iteration_time_s, without.effective_energy_j, strict=True):
            within = plans.iteration_time_s <= time_s * (1.0 + 1e-12)
            assert plans.effective_energy_j[within].min() <= effective_j * (1.0 + 1e-12)


def test_what_costs_no_time_saves_its_energy_at_no_slowdown() -> None:
    without, plan = select(planned(), Objective()), select(planned(*LINES), Objective())
    assert plan.slowdown_pct == pytest.approx(0.0, abs=1e-9)
    assert plan.energy_j < 0.9 * without.energy_j


def test_a_timeline_is_played_stretch_by_stretch_and_asked_for_with_its_memory_clock() -> None:
    plan = select(planned(*LINES), Objective())
    changing = [one for one in play(plan) if len(one.parts) > 1]
    assert changing
    for one in changing:
        assert [part.clocks for part in one.parts] == [(1410, None), (900, MEMORY_MHZ)]
        assert sum(part.duration_s for part in one.parts) == pytest.approx(one.duration_s)
    asked = clock_requests(plan, 0, CHANGE)
    assert {(one.clock_mhz, one.memory_mhz) for one in asked} >= {(1410, None), (900, MEMORY_MHZ)}
    inside = next(one for one in asked if one.memory_mhz is not None and not one.over)
    own = [one for one in play(plan) if one.instruction in {i for _, i in plan.of.computations_of(0)}]
    late_s = 1.02 * own[inside.position].parts[0].duration_s
    assert inside.offset_s == pytest.approx(late_s - CHANGE.longest_s), "so long ahead as a change takes"


def test_kernels_that_vary_have_the_higher_of_two_clocks_around_each_change() -> None:
    """Core up and memory down at 1 s: both are high from 0.98 s to 1.02 s. A short dip is left out."""
    clocks = (900, 1.0, None), (1410, 1.0, 810), (900, 0.05, 810), (1410, 1.0, 810)
    parts = tuple(Part(clock_mhz, lasts_s, 1.0, memory_mhz) for clock_mhz, lasts_s, memory_mhz in clocks)
    one = Played(Instruction(0, Kind.FORWARD, 0), 0.0, 3.05, 4.0, parts, kernels=True)
    asked = requests_of([one], 3.05, ClockChange())
    inside = [(round(ask.offset_s, 3), ask.clock_mhz, ask.memory_mhz) for ask in asked if not ask.over]
    assert inside == [(0.98, 1410, None), (1.02, 1410, 810)]


def test_timelines_and_their_temperature_survive_the_plan_file() -> None:
    own = Options(np.array([1400]), np.array([1.0]), np.array([220.0]))
    assert not own.with_timelines(GOOD[0]).leaks_alike
    assert own.with_timelines(replace(GOOD[0], temperature_c=61.0)).leaks_alike
    plans = planned(*LINES)
    warm = {key: replace(options, leaks_alike=True) for key, options in plans.options.items()}
    for written in (plans, replace(plans, options=warm)):
        again = loads(dumps(written))
        assert dumps(again) == dumps(written)
        assert all(options.spared_w == SPARED_W for options in again.options.values())
        assert verify(again) == len(plans)


@pytest.mark.parametrize("spared_w", [[[0, 1.0]], [[810, -1.0]], [[810, float("nan")]], [[810]], 3])
def test_timelines_that_spare_what_cannot_be_are_refused(spared_w: object, tmp_path: Path) -> None:
    write_timelines(tuple(GOOD), tmp_path / "timelines.json")
    content = json.loads((tmp_path / "timelines.json").read_text())
    content["instructions"][0]["spared_w"] = spared_w
    (tmp_path / "timelines.json").write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=r"spared_w|NaN"):
        read_timelines(tmp_path / "timelines.json")


def test_timelines_are_scaled_to_what_the_job_measured_at_default_clocks() -> None:
    """The kernels were measured as half as long, with a tenth of the energy, at default clocks too."""
    scaled = []
    for one in GOOD:
        default = PROFILE.of(one.stage, one.kind)[0]
        lines = tuple(
            ClockSegments(
                each.time_s / 2,
                each.energy_j / 10,
                tuple(replace(step, offset_s=step.offset_s / 2) for step in each.steps),
            )
            for each in one.timelines
        )
        spent = AtDefault(default.time_s / 2, default.energy_j / 10)
        scaled.append(replace(one, timelines=lines, default=spent))
    plain, plans = planned(*LINES), built(scaled)
    assert plans.iteration_time_s == pytest.approx(plain.iteration_time_s)
    assert plans.effective_energy_j == pytest.approx(plain.effective_energy_j)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (["timelines"], [3, []]),
        (["timelines", 0], [[], "x"]),
        (["timelines", 0, 0], [[1410, None], [1410, None, 0.5, 1], None, "1410"]),
        (["timelines", 0, 0, 0], [None, 1410.5, -3]),
        (["timelines", 0, 0, 1], ["810", True]),
        (["timelines", 0, 0, 2], [0.0, -1.0, None, 1e9, 1e-6]),
        (["spared_w"], [3, [[810]], [[810.5, 1.0]], [[0, 1.0]], [[810, -1.0]], [[810, "x"]], [None]]),
    ],
)
def test_a_damaged_timeline_is_refused_in_one_line(path: list[str | int], values: list[object]) -> None:
    text = dumps(planned(*LINES))
    for value in values:
        content: Any = json.loads(text)
        part = content["options"][0]
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        with pytest.raises(PlanError, match="is damaged") as refused:
            loads(json.dumps(content))
        assert "\n" not in refused.value.message


def test_timelines_of_what_is_not_planned_and_in_the_emulator_are_refused() -> None:
    with pytest.raises(PlanError, match="stage 7"):
        built([replace(GOOD[0], stage=7)])
    with pytest.raises(PlanError, match="timelines"):
        Emulator(planned(*LINES), PROFILE, ClusterShape())
