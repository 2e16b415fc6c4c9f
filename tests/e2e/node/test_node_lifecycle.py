"""A whole job on a node of NVIDIA GPUs (fake ones, under the real pynvml): profile, plan, run, audit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import FakeNvml, beside, block, lived, node_at
from jobs import events, names
from ranks import Said, config
from schedules import clocks_of_stage

from perseus_ds.config import Objective
from perseus_ds.plan import read_plans, select
from perseus_ds.profile import read_profile

pytestmark = pytest.mark.e2e

STAGES = 2
AUDIT = {"every_iterations": 24, "iterations": 3}  # of milliseconds: a busy host needs some for its clocks
COMPUTES_S = 0.012  # hosts that train flat out for a minute of windows keep each other from their clocks
TRIES = 3
TOO_BUSY = "a change of clock takes", "changes a clock so seldom"
"""The planner's line where this host takes longer for a change of clock than for an iteration."""


@dataclass(frozen=True)
class NodeCourse:
    """A finished lifecycle, and the clocks that stood in the driver while the plan ran."""

    run_dir: Path
    said: list[Said]
    node: FakeNvml
    stored_mhz: list[Counter[int]]


@pytest.fixture(scope="module")
def node_course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCourse]:
    for _ in range(TRIES):
        course = course_in(tmp_path_factory.mktemp("node"))
        ends = [one["reason"] for one in events(course.run_dir) if one["event"] == "disabled"]
        if not any(words in end for end in ends for words in TOO_BUSY):
            break
    else:
        pytest.skip(f"this host is too busy for clocks in real time: {ends[0]}")
    yield course
    assert course.node.locked_mhz() == [0] * STAGES


def course_in(folder: Path) -> NodeCourse:
    node, run_dir = node_at(folder, STAGES, call_us=300, idle_mhz=345), folder / "run"
    stored = [Counter[int]() for _ in range(STAGES)]

    def sample(over: threading.Event) -> None:
        while not over.wait(0.01) and "warming_up" not in names(run_dir):
            pass  # idle GPUs clock down: they tell nothing of a change before the first iteration
        for gpu in range(STAGES):
            node.state.gpu[gpu].utilization = 90
        while not over.wait(0.05):
            if (run_dir / "plan.json").exists() and "running" in names(run_dir):
                break
        while not over.wait(0.002):
            for seen, mhz in zip(stored, node.locked_mhz(), strict=True):
                seen[mhz] += 1

    def over(run_dir: Path) -> bool:
        return not {"measured", "disabled"}.isdisjoint(names(run_dir))

    with beside(sample):
        content = config(gradient_clipping=1.0, perseus=block(run_dir, audit=AUDIT))
        said = lived(node, content, over, stages=STAGES, computes_s=COMPUTES_S)
    return NodeCourse(run_dir, said, node, stored)


def test_every_phase_is_gone_through(node_course: NodeCourse) -> None:
    conflicts = [one["kind"] for one in events(node_course.run_dir) if one["event"] == "conflict"]
    assert set(conflicts) <= {"not_stored"}  # a driver of milliseconds on a busy host
    course = dict.fromkeys(names(node_course.run_dir))
    machines_business = (  # all in host time
        "varying",
        "one_clock",
        "window_too_short",
        "still_planning",
        "late_clocks",
        "conflict",
        "contradicted",
        "slower",
        "reserve",
    )
    for told in machines_business:
        course.pop(told, None)
    assert list(course) == [
        "attached",
        "warming_up",
        "calibrated",
        "profiling",
        "no_temperature",  # this driver has no sensor
        "profiled",
        "planning",
        "running",
        "measured",
        "ended",
    ]
    assert events(node_course.run_dir)[0]["device"] == "nvml"


def test_no_clock_is_left_locked(node_course: NodeCourse) -> None:
    assert node_course.node.locked_mhz() == [0] * STAGES
    journals, until_s = node_course.node.path.parent / "guard", time.monotonic() + 30.0
    while left := list(journals.glob("*.json")):  # a guard removes its journal after the clock is back
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def test_the_clocks_in_the_driver_are_those_of_the_plan(node_course: NodeCourse) -> None:
    plan = select(read_plans(node_course.run_dir / "plan.json"), Objective())
    for stage, seen in enumerate(node_course.stored_mhz):
        planned = set(clocks_of_stage(plan, stage))
        assert seen.total() > 0
        assert set(seen) <= planned | {0}  # none where nobody has locked one: audits, the first and the last
        assert set(seen) & planned


def test_the_calibration_is_kept(node_course: NodeCourse) -> None:
    found = read_profile(node_course.run_dir / "profile.json").calibration
    assert found.up_s is not None
    assert found.up_s > 0.001  # the driver settles in 3 ms, the looks come every one
    assert found.together_s is not None
    (told,) = [event for event in events(node_course.run_dir) if event["event"] == "calibrated"]
    assert told["up_s"] == found.up_s
