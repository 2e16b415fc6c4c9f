"""What a job goes through in each mode, from an empty run directory or from what another job left."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from cli_program import check_file
from jobs import (
    STAGES,
    Lifecycle,
    block,
    copy_of,
    events,
    happened,
    lines,
    names,
    plain_losses,
    train,
    train_until,
)
from ranks import Said, config, run_ranks

from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan import read_plans
from perseus_ds.plan.reserve import CANDIDATES_PCT, UNKNOWN_PCT
from perseus_ds.profile import read_profile, write_profile
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

STEPS = 6


def trained_for_a_while(
    run_dir: Path, steps: int = STEPS, microbatches: int = 4, **changes: object
) -> list[Said]:
    content = config(gradient_clipping=1.0, perseus=block(run_dir, **changes))
    return run_ranks(4, train, content, STAGES, STEPS)


def test_auto_leaves_every_file_of_the_contract(lifecycle: Lifecycle) -> None:
    summary = json.loads((lifecycle.run_dir / "summary.json").read_text())
    assert set(summary) >= {"baseline", "perseus", "saving_pct", "slowdown_pct", "measured"}
    assert summary["measured"] is True
    for side in ("baseline", "perseus"):
        assert set(summary[side]) >= {"iteration_time_s", "energy_j"}
    assert [line["name"] for line in json.loads((lifecycle.run_dir / "timelines.json").read_text())] == [
        "baseline",
        "perseus",
    ]
    assert len(list((lifecycle.run_dir / "ranks").iterdir())) == STAGES
    assert len(read_plans(lifecycle.run_dir / "plan.json")) > 1
    points = read_profile(lifecycle.run_dir / "profile.json").points
    assert set(points) == {(stage, kind) for stage in range(STAGES) for kind in (Kind.FORWARD, Kind.BACKWARD)}


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("profile.json", "profile"),
        ("plan.json", "plan"),
        ("summary.json", "summary"),
        ("events.jsonl", "event"),
    ],
)
def test_files_of_the_job_keep_to_their_schemas(lifecycle: Lifecycle, file: str, schema: str) -> None:
    check_file(lifecycle.run_dir / file, schema)


def test_auto_says_what_it_does_in_this_order(lifecycle: Lifecycle) -> None:
    happened_in_order = list(dict.fromkeys(names(lifecycle.run_dir)))
    assert happened_in_order == [
        "attached",
        "warming_up",
        "calibrated",
        "profiling",
        "profiled",
        "planning",
        "running",
        "measured",
    ]


def test_the_plan_keeps_the_reserve_that_the_jobs_own_variation_asks_for(lifecycle: Lifecycle) -> None:
    """The simulated GPUs vary by half a percent: that needs less than where nothing is known."""
    profile = read_profile(lifecycle.run_dir / "profile.json")
    variation = profile.variation()
    assert variation is not None
    assert mean(variation.values()) == pytest.approx(SimulatedSettings().noise, rel=0.3)
    plans = read_plans(lifecycle.run_dir / "plan.json")
    assert plans.reserve_pct < UNKNOWN_PCT
    assert plans.fingerprint["reserve_pct"] == "auto"


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
    told = [event for event in events(run_dir) if event["event"] == "reserve"]
    assert len(told) == 1
    assert told[0]["reserve_pct"] == CANDIDATES_PCT[-1]
    assert f"{told[0]['variation_slowdown_pct']:.2f} %" in told[0]["line"]
    assert "reserve" not in names(lifecycle.run_dir)


def test_only_rank_0_speaks(lifecycle: Lifecycle) -> None:
    assert lines(lifecycle.said[0])
    assert [lines(said) for said in lifecycle.said[1:]] == [[], [], []]


def test_the_measured_saving_is_the_predicted_one(lifecycle: Lifecycle) -> None:
    """Within a point: an audit of three iterations leaves half a point open, three clocks some more."""
    summary = json.loads((lifecycle.run_dir / "summary.json").read_text())
    assert summary["saving_pct"] > 5
    assert summary["saving_pct"] == pytest.approx(summary["predicted_saving_pct"], abs=1.0)


def test_in_virtual_time_planning_takes_no_iterations(lifecycle: Lifecycle) -> None:
    """The planner takes seconds, in which this host would train a hundred iterations or none."""
    assert len(lifecycle.said[0].value.losses) <= 60


def test_a_second_start_runs_at_once(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "again")
    said = trained_for_a_while(run_dir)
    assert names(run_dir) == ["attached", "warming_up", "calibrated", "running"]
    assert all(one.value.locks > STEPS for one in said[:-1])
    assert [one.value.losses for one in said] == plain_losses(STEPS)


def test_the_command_makes_the_jobs_own_plan_and_run_takes_it(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "by hand", without=("plan.json",))
    words = ["plan", str(run_dir / "profile.json"), "-o", str(run_dir / "plan.json")]
    told = subprocess.run(
        [sys.executable, "-m", "perseus_ds", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert "not as" not in told.stderr
    ours, jobs = read_plans(run_dir / "plan.json"), read_plans(lifecycle.run_dir / "plan.json")
    assert ours.fingerprint == jobs.fingerprint
    assert (ours.baseline, ours.t_min_s, ours.fixed_s) == (jobs.baseline, jobs.t_min_s, jobs.fixed_s)
    assert ours.iteration_time_s.tolist() == jobs.iteration_time_s.tolist()
    assert ours.effective_energy_j.tolist() == jobs.effective_energy_j.tolist()
    trained_for_a_while(run_dir, mode="run")
    assert names(run_dir) == ["attached", "warming_up", "calibrated", "running"]


@pytest.mark.slow
def test_other_microbatches_are_planned_from_the_same_profile(lifecycle: Lifecycle, tmp_path: Path) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "more")
    content = config(6, gradient_clipping=1.0, perseus=block(run_dir))
    run_ranks(4, train_until, content, STAGES, happened("running"))
    assert names(run_dir) == ["attached", "warming_up", "calibrated", "planning", "running"]
    assert "4 microbatches" in events(run_dir)[0]["line"]
    kept = [read_plans(run_dir / name).schedule.microbatches for name in ("plan.json", "plan.m6.json")]
    assert kept == [4, 6]


SWITCHES = 7
"""Of one calibration: rank 0's GPU is measured alone too."""


@pytest.mark.slow
def test_profile_stays_at_default_clocks_afterwards(tmp_path: Path) -> None:
    content = config(gradient_clipping=1.0, perseus=block(tmp_path, mode="profile"))
    said = run_ranks(4, train_until, content, STAGES, happened("profiled"))
    assert (tmp_path / "profile.json").exists()
    assert (tmp_path / "plan_request.json").exists()
    assert not (tmp_path / "plan.json").exists()
    assert [one.value.clock_mhz for one in said] == [1410.0] * STAGES
    assert [one.value.locks for one in said] == [2 * SWITCHES + 4, *[SWITCHES + 4] * (STAGES - 1)]


@pytest.mark.parametrize("planned", [True, False], ids=["with a plan", "without a plan"])
def test_observe_never_asks_for_a_clock(lifecycle: Lifecycle, tmp_path: Path, *, planned: bool) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "seen", without=() if planned else ("plan.json",))
    said = trained_for_a_while(run_dir, mode="observe")
    assert [one.value.locks for one in said] == [0] * STAGES
    assert ("predicted" in names(run_dir)) is planned
    assert [one.value.losses for one in said] == plain_losses(STEPS)


def test_off_is_off(tmp_path: Path) -> None:
    said = trained_for_a_while(tmp_path / "off", mode="off")
    assert [one.value.attached for one in said] == [False] * STAGES
    assert [lines(one) for one in said] == [[]] * STAGES
    assert not (tmp_path / "off").exists()


@pytest.fixture
def flagged(tmp_path: Path) -> Iterator[tuple[Path, list[Said]]]:
    """A job whose flags stand in the environment of rank 0 alone, against everything in its block."""
    run_dir = tmp_path / "by flag"
    flags = {"PERSEUS_MODE": "observe", "PERSEUS_DEVICE": "null", "PERSEUS_RUN_DIR": str(run_dir)}
    content = config(gradient_clipping=1.0, perseus=block(tmp_path / "by block"))
    yield run_dir, run_ranks(4, train, content, STAGES, STEPS, flags)
    assert not (tmp_path / "by block").exists()


def test_flags_of_rank_0_reach_all(flagged: tuple[Path, list[Said]]) -> None:
    run_dir, said = flagged
    assert events(run_dir)[0]["mode"] == "observe"
    assert events(run_dir)[0]["device"] == "null"
    assert [one.value.clock_mhz for one in said] == [None] * STAGES, "some rank opened a simulated GPU"
