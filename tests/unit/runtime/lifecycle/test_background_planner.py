"""The planner's own process: what it says goes into a file of ours, whatever lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanRequest
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.lifecycle.batches.background_planner import BackgroundPlanner, PlanJob
from perseus_ds.schedule import textbook


def test_its_log_follows_no_link_and_its_last_line_is_said(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run.path / "planner.log").symlink_to(precious)
    request = PlanRequest(textbook("1f1b", stages=2, microbatches=2), {}, 70.0, 0.0)
    planner = BackgroundPlanner(run, [PlanJob(request, run.profile, run.plan)])
    with pytest.raises(PlanError, match=r"planning failed: .*profile\.json: No such file"):
        planner.wait()
    assert precious.read_text() == "mine"
    assert not (run.path / "planner.log").is_symlink()
