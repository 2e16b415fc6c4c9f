"""The process that plans beside a job's training, as the job starts it."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from schedules import clocks_of_stage
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import Calibration, ClockChange
from perseus_ds.plan import PlanSet, build, read_plans, select
from perseus_ds.plan.expected import expected
from perseus_ds.plan.file import PlanRequest, read_request, write_request
from perseus_ds.profile import Point, Profile, write_profile
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook

pytestmark = pytest.mark.thorough

SCHEDULE = textbook("1f1b", stages=2, microbatches=3)
PROFILE = textbook_profile([1.0, 1.1])
REQUEST = PlanRequest(SCHEDULE, {"gpu": "one"}, blocking_power_w=70.0, reserve_pct=1.0)

Done = subprocess.CompletedProcess[str]
SLOW = Calibration(30.0, 60.0, 60.0, together_s=60.0, counter_period_s=0.1, unreached=0)


@cache
def wanted_plans() -> PlanSet:
    return build(PROFILE, SCHEDULE, blocking_power_w=70.0, reserve_pct=1.0)


def started(folder: Path, request: PlanRequest, profile: Profile | None = PROFILE) -> Done:
    files = [folder / name for name in ("profile.json", "request.json", "plan.json")]
    if profile is not None:
        write_profile(profile, files[0])
    write_request(files[1], request)
    command = [sys.executable, "-m", "perseus_ds.plan", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def planned(folder: Path, request: PlanRequest, profile: Profile = PROFILE) -> PlanSet:
    done = started(folder, request, profile)
    assert (done.returncode, done.stderr) == (0, "")
    return read_plans(folder / "plan.json")


def test_where_a_change_outlasts_an_iteration_every_gpu_keeps_one_clock(tmp_path: Path) -> None:
    plans = planned(tmp_path, REQUEST, replace(PROFILE, calibration=SLOW))
    assert len(plans) > 1
    for plan in map(plans.plan, range(len(plans))):
        for stage in range(SCHEDULE.stages):
            assert len(set(clocks_of_stage(plan, stage))) == 1


def test_the_time_that_the_objective_allows_has_a_plan_of_its_own(tmp_path: Path) -> None:
    wanted = wanted_plans()
    deadline_s = float(wanted.iteration_time_s[30:32].mean())
    objective = Objective("deadline", deadline_s=deadline_s)
    plans = planned(tmp_path, replace(REQUEST, objective=objective))
    assert len(plans) == len(wanted) + 1
    chosen = select(plans, objective)
    assert chosen.energy_j < select(wanted, objective).energy_j
    assert chosen.iteration_time_s == pytest.approx(deadline_s, rel=1e-4)


def test_it_works_out_what_to_expect_of_the_plan_that_the_job_will_run(tmp_path: Path) -> None:
    """Beside the training: the job finds in the file what it would have worked out itself."""
    profile = replace(textbook_profile([1.0, 1.1], variation=0.01), blocking_w={1410: 70.0, 750: 50.0})
    objective, change = Objective("max_slowdown", max_slowdown_pct=10.0), ClockChange(0.0, 0.01, 0.01)
    fingerprint = {"gpu": "one", "replicas": "2"}
    request = replace(REQUEST, fingerprint=fingerprint, objective=objective, change=change)
    plans = planned(tmp_path, request, profile)
    plan = select(plans, objective)
    own = expected(plan, profile, change, variation=profile.variation(), replicas=2)
    assert plans.expected == {plan.index: own}
    ratio = plans.power_ratio
    for index in (0, len(plans) - 1):
        own = expected(plans.plan(index), profile, change)
        time_s = plans.baseline.iteration_time_s * (1.0 + own.slowdown_pct / 100.0)
        power_w = plans.baseline.energy_j * (1.0 - own.saving_pct / 100.0) / time_s
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        assert ratio[index] == pytest.approx(power_w / planned_w)


def test_a_deadline_that_no_plan_keeps_is_not_the_planner_s_to_refuse(tmp_path: Path) -> None:
    request = replace(REQUEST, objective=Objective("deadline", deadline_s=1e-6))
    assert planned(tmp_path, request, replace(PROFILE, blocking_w={1410: 70.0})).expected == {}


def test_a_refusal_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    done = started(tmp_path, REQUEST, None)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "profile.json" in line
    assert not (tmp_path / "plan.json").exists()


# Work that we have no word for: its names travel with the schedule, in requests and in plans.


def test_unknown_work_takes_its_time_or_gets_a_clock(tmp_path: Path) -> None:
    order = tuple(map(Instruction.parse, ("0F0", "0X0", "0B0", "0XC0")))
    schedule = Schedule("users.Own", 1, (order,), unknown=("Checkpoint", "Polish"))
    points = (Point(1400, 1.0, 300.0), Point(1000, 1.4, 200.0))
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.UNKNOWN_COMPUTE)
    profile = Profile({(0, kind): points for kind in kinds}, fixed_s={(0, Kind.UNKNOWN): 0.5})
    request = replace(REQUEST, schedule=schedule)
    plans = planned(tmp_path, request, profile)
    assert plans.baseline.iteration_time_s == 3.5
    assert [str(i) for i in plans.computations()] == ["0F0", "0B0", "0XC0"]
    assert plans.schedule == schedule
    assert read_request(tmp_path / "request.json") == request


# A planner begins at the job's priority and steps back when it takes long.

STEP_BACK = """
import os, threading, time
import numpy as np
from perseus_ds.plan.__main__ import NICE, step_back_after
main, seen, matrix = threading.get_native_id(), [], np.ones((1500, 1500))
before = os.getpriority(os.PRIO_PROCESS, main)
wanted, imported_s = min({times} * NICE, 19 - before), time.process_time()
def look():  # on a busy host the watch has its turn late
    while (spent_s := time.process_time() - imported_s) < 0.4 or (seen[-1] != wanted and spent_s < 20.0):
        time.sleep(0.01)
        seen.append(os.getpriority(os.PRIO_PROCESS, main) - before)
step_back_after({after_s})
other = threading.Thread(target=look)
other.start()
while other.is_alive():
    matrix @ matrix  # compiled code does not come back to the interpreter: a signal's handler would wait
print(seen[-1] == wanted)
"""


@pytest.mark.parametrize(("after_s", "times"), [(0.1, 1), (60.0, 0)])
def test_it_steps_back_once_and_not_before(after_s: float, times: int) -> None:
    script = STEP_BACK.format(after_s=after_s, times=times)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    assert done.stdout.strip() == "True"
