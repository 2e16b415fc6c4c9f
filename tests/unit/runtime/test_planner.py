"""The planner's own process: what it says goes into a file of ours, whatever lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanRequest, read_plans
from perseus_ds.profile import read_profile, write_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.plans import LONG_S, BackgroundPlanner, LongPlanning
from perseus_ds.schedule import textbook

PROFILE = Path(__file__).parents[3] / "docs" / "examples" / "profile.csv"


def test_its_log_follows_no_link_and_its_last_line_is_said(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run.path / "planner.log").symlink_to(precious)
    request = PlanRequest(textbook("1f1b", stages=2, microbatches=2), {}, 70.0, 0.0)
    planner = BackgroundPlanner(run, request, run.plan)
    planner.wait()
    with pytest.raises(PlanError, match=r"profile\.json"):
        planner.ready()
    assert precious.read_text() == "mine"
    assert not (run.path / "planner.log").is_symlink()


@pytest.mark.thorough
def test_modules_of_the_job_s_folder_are_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('no module of theirs is ours')")
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    profile = read_profile(PROFILE)
    write_profile(profile, run.profile)
    schedule = textbook("1f1b", stages=profile.stages, microbatches=2)
    request = PlanRequest(schedule, profile.fingerprint, blocking_power_w=70.0, reserve_pct=0.0)
    planner = BackgroundPlanner(run, request, run.plan)
    planner.wait()
    assert planner.ready()
    assert len(read_plans(run.plan)) > 1


def test_nothing_is_said_within_a_minute() -> None:
    long = LongPlanning()
    assert not any(long.is_due(second) for second in range(int(LONG_S)))


def test_a_planner_that_hangs_for_a_day_is_told_eleven_times() -> None:
    long = LongPlanning()
    told = [second for second in range(24 * 3600) if long.is_due(second)]
    assert told == [60 * 2**doubling for doubling in range(11)]
