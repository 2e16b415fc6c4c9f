"""Phases of a job in each mode, from an empty run directory or from what another job left."""

import atexit
import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import jobs
import pytest
from cli_program import check_file
from jobs import STAGES, Lifecycle, block, copy_of, happened, lines, names, plain_losses, train, train_until
from ranks import batches, build, config, run_ranks

from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.kernels.trace import KERNEL_TRACES, merge
from perseus_ds.plan import read_plans
from perseus_ds.plan.reserve import CANDIDATES_PCT, UNKNOWN_PCT
from perseus_ds.profile import read_profile, write_profile
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

STEPS = 6
ATTACHED = ["attached", "warming_up", "calibrated"]
COURSE = ["profiling", "profiled", "planning", "running", "measured"]


def test_auto_goes_the_whole_course_and_leaves_every_file_of_the_contract(lifecycle: Lifecycle) -> None:
    run_dir, said = lifecycle.run_dir, lifecycle.said
    assert list(dict.fromkeys(names(run_dir))) == [*ATTACHED[:2], "kernels_traced", ATTACHED[2], *COURSE]
    assert lines(said[0])
    assert [lines(one) for one in said[1:]] == [[]] * 3, "only rank 0 speaks"
    for file in ("profile.json", "plan.json", "summary.json"):
        check_file(run_dir / file, file.removesuffix(".json"))
    check_file(run_dir / "events.jsonl", "event")
    timelines = json.loads((run_dir / "timelines.json").read_text())
    assert [one["name"] for one in timelines] == ["baseline", "perseus"]
    assert len(list((run_dir / "ranks").iterdir())) == STAGES
    assert len(read_plans(run_dir / "plan.json")) > 1
    points = read_profile(run_dir / "profile.json").points
    assert set(points) == {(stage, kind) for stage in range(STAGES) for kind in (Kind.FORWARD, Kind.BACKWARD)}


def test_kernels_of_every_instruction_were_traced(lifecycle: Lifecycle) -> None:
    trace = merge(
        [KERNEL_TRACES.read(file) for file in sorted((lifecycle.run_dir / "kernels").glob("rank*.json"))]
    )
    assert trace.iterations == jobs.TRACED
    assert trace.overhead_pct is not None
    assert {(one.stage, one.kind) for one in trace.sequences} == {
        (stage, kind) for stage in range(STAGES) for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    for one in trace.sequences:
        assert one.times == jobs.MICROBATCHES
        kernels = [trace.classes[kernel].name for kernel in one.kernels]
        # A layer multiplies twice forward; backward twice for weights and, below the first, for inputs.
        wanted = 2 if one.kind is Kind.FORWARD else 4 if one.stage else 3
        assert sum(name in {"aten::addmm", "aten::mm"} for name in kernels) == wanted


def test_losses_are_those_without_us_and_planning_takes_no_iterations(lifecycle: Lifecycle) -> None:
    """The planner takes seconds, in which this host would train a hundred iterations or none."""
    ours = [said.value.losses for said in lifecycle.said]
    assert ours == plain_losses(len(ours[0]))
    assert len(ours[0]) <= 60


def test_losses_of_two_stages_by_two_replicas_in_bf16_with_zero_1(tmp_path: Path) -> None:
    precision: dict[str, Any] = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
    with_us = config(perseus=block(tmp_path, mode="profile"), gradient_clipping=1.0, **precision)
    without = config(gradient_clipping=1.0, **precision)
    ours = [said.value.losses for said in run_ranks(4, train_until, with_us, 2, happened("profiled"))]
    assert "profiled" in names(tmp_path)
    assert ours == [said.value.losses for said in run_ranks(4, train, without, 2, len(ours[0]))]


def test_the_plan_keeps_the_reserve_that_the_jobs_own_variation_asks_for(lifecycle: Lifecycle) -> None:
    """The simulated GPUs vary by half a percent: that needs less than where nothing is known."""
    variation = read_profile(lifecycle.run_dir / "profile.json").variation()
    assert mean(variation.values()) == pytest.approx(SimulatedSettings().noise, rel=0.3)
    plans = read_plans(lifecycle.run_dir / "plan.json")
    assert plans.reserve_pct < UNKNOWN_PCT
    assert plans.fingerprint["reserve_pct"] == "auto"
    assert "reserve" not in names(lifecycle.run_dir)


def test_a_reserve_that_is_too_little_is_told(lifecycle: Lifecycle, tmp_path: Path) -> None:
    """Planned again from a profile in which durations vary by a fifth: more than the reserve may cover."""
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "wild", without=("plan.json",))
    known = read_profile(run_dir / "profile.json")
    points = {
        key: tuple(replace(point, time_sd_s=0.2 * point.time_s) for point in own)
        for key, own in known.points.items()
    }
    write_profile(replace(known, points=points), run_dir / "profile.json")
    content = config(gradient_clipping=1.0, perseus=block(run_dir))
    run_ranks(4, train_until, content, STAGES, happened("running"))
    (told,) = jobs.events(run_dir, "reserve")
    assert told["reserve_pct"] == CANDIDATES_PCT[-1]
    assert f"{told['variation_slowdown_pct']:.2f} %" in told["line"]


def evaluated(rank: int, content: dict[str, Any]) -> tuple[list[str], int]:
    engine, data, losses = build(content, stages=STAGES, inner=jobs.UNEVEN), batches(), []
    for _ in range(2 * STEPS // 3):
        losses += [float(engine.train_batch(data)).hex() for _ in range(3)]
        losses.append(float(engine.eval_batch(data)).hex())
    assert ("_exec_schedule" in vars(engine)) == ("perseus" in content)
    return losses, jobs.locks()


def test_the_command_makes_the_jobs_own_plan_which_runs_at_once(lifecycle: Lifecycle, tmp_path: Path) -> None:
    """It is the same to the last bit, and so are the losses of a job that evaluates between its steps."""
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "again", without=("plan.json",))
    words = ["plan", str(run_dir / "profile.json"), "-o", str(run_dir / "plan.json")]
    command = [sys.executable, "-m", "perseus_ds", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert "not as" not in told.stderr
    ours, jobs = read_plans(run_dir / "plan.json"), read_plans(lifecycle.run_dir / "plan.json")
    assert ours.fingerprint == jobs.fingerprint
    assert (ours.baseline, ours.t_min_s, ours.fixed_s) == (jobs.baseline, jobs.t_min_s, jobs.fixed_s)
    assert ours.iteration_time_s.tolist() == jobs.iteration_time_s.tolist()
    assert ours.effective_energy_j.tolist() == jobs.effective_energy_j.tolist()
    said = run_ranks(4, evaluated, config(perseus=block(run_dir)))
    assert names(run_dir)[:4] == [*ATTACHED, "running"]
    assert all(one.value[1] > STEPS for one in said[:-1])
    assert [one.value[0] for one in said] == [one.value[0] for one in run_ranks(4, evaluated, config())]


def test_observe_never_asks_for_a_clock(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "seen")
    content = config(gradient_clipping=1.0, perseus=block(run_dir, mode="observe"))
    said = run_ranks(4, train, content, STAGES, STEPS)
    assert [one.value.locks for one in said] == [0] * STAGES
    assert "predicted" in names(run_dir)
    assert [one.value.losses for one in said] == plain_losses(STEPS)


def to_its_end(rank: int, content: dict[str, Any], steps: int) -> jobs.Trained:
    """Train, and run the exit handlers of ours: `run_ranks` ends by ``os._exit``.

    The job's folder has a module by the name of one of ours, as folders of users do.
    """
    atexit._clear()  # those of pytest, which this process was forked from
    os.chdir(Path(content["perseus"]["run_dir"]).parent)
    if rank == 0:
        Path("numpy.py").write_text("raise RuntimeError('no module of theirs is ours')")
    found = train(rank, content, STAGES, steps)
    atexit._run_exitfuncs()
    return found


@pytest.mark.parametrize(("steps", "measured"), [(6, False), (40, True)])
@pytest.mark.slow
def test_a_job_leaves_its_report_or_the_reason_for_its_absence(
    lifecycle: Lifecycle,
    tmp_path: Path,
    steps: int,
    measured: bool,  # noqa: FBT001
) -> None:
    """And what DeepSpeed's own monitor was shown."""
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "run")
    monitor = {"enabled": True, "output_path": str(tmp_path / "csv"), "job_name": "job"}
    content = config(gradient_clipping=1.0, perseus=block(run_dir), csv_monitor=monitor, steps_per_print=2)
    said = run_ranks(4, to_its_end, content, steps)[0].output
    assert ("no saving" in said) == (not measured)
    assert ("report.html" in said) == (run_dir / "report.html").exists() == measured
    if not measured:
        return
    shown = {}
    for file in (tmp_path / "csv").rglob("Perseus_*.csv"):
        _, *rows = csv.reader(file.read_text().splitlines())
        shown[file.stem.removeprefix("Perseus_")] = [float(value) for _, value in rows]
    alone = {"plan", "straggler_time_s", "slack_s", "rank0_energy_per_iteration_j", "rank0_power_w"}
    assert set(shown) == alone | {"energy_per_iteration_j", "power_w", "saving_pct", "slowdown_pct"}
    assert len(shown["plan"]) >= 3
    assert set(shown["slack_s"]) == {0.0}
    assert 50 < shown["rank0_power_w"][-1] < 500
    assert shown["power_w"][-1] > shown["rank0_power_w"][-1]
    assert shown["saving_pct"][-1] > 0
