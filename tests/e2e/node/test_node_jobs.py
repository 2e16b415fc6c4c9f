"""Whole jobs on a node of NVIDIA GPUs (fake ones, under the real pynvml), and what troubles them there.

Others, drivers, guards and planners in the way cost a line, and training goes on.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import FakeNvml, beside, block, holding, lived, node_at, when
from jobs import STAGES, events, happened, lines, names, plain_losses
from processes import Daemon, allowing, serving
from ranks import Said, config
from schedules import clocks_of_stage

from perseus_ds.config import Objective
from perseus_ds.device.gpu import ConflictKind
from perseus_ds.plan import read_plans, select
from perseus_ds.profile import read_profile
from perseus_ds.runtime import plans

pytestmark = pytest.mark.e2e

AUDIT = {"every_iterations": 24, "iterations": 3}  # of milliseconds: a busy host needs some for its clocks

# Profile, plan, run and audit of two stages.

GPUS = 2
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
    for _ in range(TRIES):  # a starved host ends one in ways of its own
        course = course_in(tmp_path_factory.mktemp("node"))
        ends = [one["reason"] for one in events(course.run_dir, "disabled")]
        if not ends:
            break
    if any(words in end for end in ends for words in TOO_BUSY):
        pytest.skip(f"this host is too busy for clocks in real time: {ends[0]}")
    yield course
    assert course.node.locked_mhz() == [0] * GPUS


def course_in(folder: Path) -> NodeCourse:
    node, run_dir = node_at(folder, GPUS, call_us=300, idle_mhz=345), folder / "run"
    stored = [Counter[int]() for _ in range(GPUS)]

    def sample(over: threading.Event) -> None:
        while not over.wait(0.01) and "warming_up" not in names(run_dir):
            pass  # idle GPUs clock down: they tell nothing of a change before the first iteration
        for gpu in range(GPUS):
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
        said = lived(node, content, over, stages=GPUS, computes_s=COMPUTES_S)
    return NodeCourse(run_dir, said, node, stored)


def test_every_phase_is_gone_through(node_course: NodeCourse) -> None:
    conflicts = {one["kind"] for one in events(node_course.run_dir, "conflict")}
    assert conflicts <= {"not_stored"}  # a driver of milliseconds on a busy host
    course = dict.fromkeys(names(node_course.run_dir))
    machines_business = (  # all in host time
        *("varying", "one_clock", "window_too_short", "still_planning", "late_clocks", "conflict"),
        *("contradicted", "slower", "reserve"),
    )
    for told in machines_business:
        course.pop(told, None)
    assert list(course) == [
        *("attached", "warming_up", "calibrated", "profiling"),
        "no_temperature",  # this driver has no sensor
        *("profiled", "planning", "running", "measured", "ended"),
    ]
    assert events(node_course.run_dir)[0]["device"] == "nvml"


def test_no_clock_is_left_locked(node_course: NodeCourse) -> None:
    assert node_course.node.locked_mhz() == [0] * GPUS
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
    assert found.up_s > 0.001  # the driver settles in 3 ms, the looks come every one
    assert found.together_s is not None
    (told,) = events(node_course.run_dir, "calibrated")
    assert told["up_s"] == found.up_s


# Others, drivers, guards and planners that trouble a job of four stages.

VICTIM = 2
HANG_S = 8.0  # longer than any wait of ours on the training thread


@pytest.fixture
def node(tmp_path: Path) -> FakeNvml:
    return node_at(tmp_path, call_us=300)


def announced(said: list[Said], words: str) -> list[int]:
    return [one.rank for one in said for line in lines(one) if words in line]


def as_without_us(said: list[Said], node: FakeNvml, *, served: bool) -> None:
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
    assert [one.value.attached for one in said] == [served] * STAGES
    assert served or node.locked_mhz() == [0] * STAGES


def conflicts(run_dir: Path) -> list[tuple[object, ...]]:
    """All but requests that a busy host brings late to its driver: nobody else is at work there."""
    seen = [(one["kind"], one["rank"], one["rule"]) for one in events(run_dir, "conflict")]
    return [one for one in seen if one[0] != "not_stored"]


@pytest.mark.slow
def test_a_lost_gpu_takes_all_out_and_is_repaired_when_it_is_back(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"

    def held() -> bool:  # calibration holds it too, for a moment
        return "profiling" in names(run_dir) and node.locked_mhz() == [1410] * STAGES

    def lose() -> None:
        time.sleep(1.0)  # the guard reads a clock back four times a second: let it see this one reached
        node.state.gpu[VICTIM].any_error = 15

    def over(run_dir: Path) -> bool:
        return "gpu_lost" in [kind for kind, _, _ in conflicts(run_dir)] and not node.locked_mhz()[0]

    with beside(when(held, lose)):
        content = config(gradient_clipping=1.0, perseus=holding(run_dir))
        said = lived(node, content, over, more=10)
    assert node.locked_mhz() == [0, 0, 1410, 0]
    node.state.gpu[VICTIM].any_error = 0
    command = [sys.executable, "-m", "perseus_ds", "clocks", "reset"]  # its guard may have put it back before
    subprocess.run(command, env=node.environment(), check=True, timeout=60)
    as_without_us(said, node, served=False)
    assert ("gpu_lost", VICTIM, "give_up") in conflicts(run_dir)
    assert announced(said, "conflict on rank 2: the GPU has fallen off the bus") == [0]
    assert VICTIM in announced(said, "off, training")


@pytest.mark.slow
def test_a_driver_that_hangs_in_the_middle_of_a_plan_costs_a_line(node: FakeNvml, tmp_path: Path) -> None:
    run_dir, trained = tmp_path / "run", tmp_path / "trained"

    def hang() -> None:
        stuck = node.state.gpu[VICTIM]
        time.sleep(1.0)
        (run_dir / "hung").touch()
        stuck.call_us, calls_us = int(HANG_S * 1e6), stuck.call_us
        time.sleep(HANG_S)
        stuck.call_us = calls_us
        (run_dir / "hung").unlink()
        time.sleep(2.0 * HANG_S)  # until the call that was under way has come back
        (run_dir / "over").touch()

    def over(run_dir: Path) -> bool:
        if (run_dir / "hung").exists():
            with trained.open("a") as file:
                file.write(".")
        return (run_dir / "over").exists()

    content = config(gradient_clipping=1.0, perseus=block(run_dir, audit=AUDIT))
    with beside(when(lambda: (run_dir / "plan.json").exists() and "running" in names(run_dir), hang)):
        said = lived(node, content, over)
    as_without_us(said, node, served=True)
    assert len(trained.read_text()) >= 10 * STAGES, "training went on while the driver hung"
    told = {event["kind"] for event in events(run_dir, "conflict") if event["rank"] == VICTIM}
    assert told == {"not_stored"}
    assert len(announced(said, "did not take a higher clock in time")) == 1
    assert "disabled" not in names(run_dir)
    assert node.locked_mhz() == [0] * STAGES


@pytest.fixture
def services(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Daemon]]:
    """The node's service, guardd; the last of the list is the one that runs."""
    path = tmp_path / "guardd.sock"
    for name, value in (node.environment() | {"PERSEUS_GUARDD_SOCKET": str(path)}).items():
        monkeypatch.setenv(name, value)
    services = [serving(path, *allowing())]
    yield services
    services[-1].end()


def planned(node: FakeNvml, run_dir: Path) -> Callable[[], bool]:
    return lambda: happened("measured")(run_dir) and any(0 < mhz < 1410 for mhz in node.locked_mhz())


@pytest.mark.slow
def test_a_restarted_service_costs_iterations(node: FakeNvml, services: list[Daemon], tmp_path: Path) -> None:
    run_dir, measured = tmp_path / "run", list[int]()
    runs = planned(node, run_dir)

    def restart() -> None:
        services[-1].end(signal.SIGKILL)
        time.sleep(2.0)
        services.append(serving(services[-1].path, *allowing()))

    def over(run_dir: Path) -> bool:
        if [kind for kind, _, _ in conflicts(run_dir)].count("control_back") < STAGES:
            return False
        measured.append(names(run_dir).count("measured"))
        return measured[-1] > measured[0] and runs()

    content = config(gradient_clipping=1.0, perseus=block(run_dir, device="guardd"))
    with beside(when(runs, restart)):
        said = lived(node, content, over)
    as_without_us(said, node, served=True)
    for kind in (ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK):
        assert announced(said, kind.text) == [0]
    assert announced(said, "off, training") == []
    assert node.locked_mhz() == [0] * STAGES


@pytest.mark.slow
def test_a_guard_that_hangs_is_the_end_of_control_and_not_of_training(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"

    def stop() -> None:
        guards = [pid for pid, words in node.processes().items() if "perseus_ds.guard" in words]
        os.kill(guards[0], signal.SIGSTOP)

    def over(run_dir: Path) -> bool:
        return happened("disabled")(run_dir) and not any(node.locked_mhz())

    with beside(when(planned(node, run_dir), stop)):
        said = lived(node, config(gradient_clipping=1.0, perseus=block(run_dir)), over)
    as_without_us(said, node, served=False)
    assert len(announced(said, "off, training goes on at default clocks: the guard hangs")) == 1


def planners(run_dir: Path) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                if "perseus_ds.plan" in words and any(word.startswith(str(run_dir)) for word in words):
                    found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_job_says_that_its_planner_gets_no_processor(
    node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "LONG_S", 1.0)  # the ranks are forked from here
    run_dir = tmp_path / "run"

    def starve(over: threading.Event) -> None:
        while not (stopped := planners(run_dir)) and not over.wait(0.005):
            pass
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        while "still_planning" not in names(run_dir) and not over.wait(0.05):
            pass
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    with beside(starve):
        said = lived(node, config(gradient_clipping=1.0, perseus=block(run_dir)), happened("running"))
    as_without_us(said, node, served=True)
    assert events(run_dir, "still_planning")[0]["lasted_s"] >= 1.0
    assert "still planning" in said[0].output
    assert names(run_dir).index("running") > names(run_dir).index("still_planning")
