"""The process that plans beside a job's training, as the job starts it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import Calibration, ClockChange
from perseus_ds.plan import PlanRequest, build, expected, read_plans, select, write_request
from perseus_ds.profile import write_profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.textbook_gpu import textbook_profile

pytestmark = pytest.mark.thorough

SCHEDULE = textbook("1f1b", stages=2, microbatches=3)
PROFILE = textbook_profile([1.0, 1.1])
REQUEST = PlanRequest(SCHEDULE, {"gpu": "one"}, blocking_power_w=70.0, reserve_pct=1.0)

SLOW = Calibration(30.0, 60.0, 60.0, together_s=60.0, counter_period_s=0.1, unreached=0)


def started(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perseus_ds.plan", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_it_writes_the_plans_that_were_asked_for(tmp_path: Path) -> None:
    profile, request, plan = (tmp_path / name for name in ("profile.json", "request.json", "plan.json"))
    write_profile(PROFILE, profile)
    write_request(request, REQUEST)
    done = started(profile, request, plan)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = build(PROFILE, SCHEDULE, blocking_power_w=70.0, reserve_pct=1.0)
    written = read_plans(plan)
    assert written.fingerprint == REQUEST.fingerprint
    assert written.iteration_time_s.tolist() == wanted.iteration_time_s.tolist()
    assert written.effective_energy_j.tolist() == wanted.effective_energy_j.tolist()


def test_where_a_change_outlasts_an_iteration_every_gpu_keeps_one_clock(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("profile.json", "request.json", "plan.json")]
    write_profile(replace(PROFILE, calibration=SLOW), files[0])
    write_request(files[1], REQUEST)
    assert started(*files).returncode == 0
    plans = read_plans(files[2])
    assert len(plans) > 1
    for index in range(len(plans)):
        for stage in range(SCHEDULE.stages):
            assert len(set(plans.plan(index).clocks_of_stage(stage))) == 1


def test_the_time_that_the_objective_allows_has_a_plan_of_its_own(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("profile.json", "request.json", "plan.json")]
    wanted = build(PROFILE, SCHEDULE, blocking_power_w=70.0, reserve_pct=1.0)
    deadline_s = float(wanted.iteration_time_s[30:32].mean())
    objective = Objective("deadline", deadline_s=deadline_s)
    write_profile(PROFILE, files[0])
    write_request(files[1], replace(REQUEST, objective=objective))
    assert started(*files).returncode == 0
    plans = read_plans(files[2])
    assert len(plans) == len(wanted) + 1
    chosen = select(plans, objective)
    assert chosen.energy_j < select(wanted, objective).energy_j
    assert chosen.iteration_time_s == pytest.approx(deadline_s, rel=1e-4)


def test_it_works_out_what_to_expect_of_the_plan_that_the_job_will_run(tmp_path: Path) -> None:
    """Beside the training: the job finds in the file what it would have worked out itself."""
    profile = replace(textbook_profile([1.0, 1.1], variation=0.01), blocking_w={1410: 70.0, 750: 50.0})
    request = replace(
        REQUEST,
        fingerprint={"gpu": "one", "replicas": "2"},
        objective=Objective("max_slowdown", max_slowdown_pct=10.0),
        change=ClockChange.of_latency(0.01),
    )
    files = [tmp_path / name for name in ("profile.json", "request.json", "plan.json")]
    write_profile(profile, files[0])
    write_request(files[1], request)
    done = started(*files)
    assert (done.returncode, done.stderr) == (0, "")
    plans = read_plans(files[2])
    plan = select(plans, Objective("max_slowdown", max_slowdown_pct=10.0))
    own = expected(plan, profile, ClockChange.of_latency(0.01), variation=profile.variation(), replicas=2)
    assert plans.expected == {plan.index: own}
    ratio = plans.power_ratio
    assert ratio is not None
    for index in (0, len(plans) - 1):
        own = expected(plans.plan(index), profile, ClockChange.of_latency(0.01))
        time_s = plans.baseline.iteration_time_s * (1.0 + own.slowdown_pct / 100.0)
        power_w = plans.baseline.energy_j * (1.0 - own.saving_pct / 100.0) / time_s
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        assert ratio[index] == pytest.approx(power_w / planned_w)


def test_a_deadline_that_no_plan_keeps_is_not_the_planner_s_to_refuse(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("profile.json", "request.json", "plan.json")]
    write_profile(replace(PROFILE, blocking_w={1410: 70.0}), files[0])
    write_request(files[1], replace(REQUEST, objective=Objective("deadline", deadline_s=1e-6)))
    assert started(*files).returncode == 0
    assert read_plans(files[2]).expected == {}


def test_a_refusal_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    write_request(tmp_path / "request.json", REQUEST)
    done = started(tmp_path / "none.json", tmp_path / "request.json", tmp_path / "plan.json")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "none.json" in line
    assert not (tmp_path / "plan.json").exists()
