"""A run directory as a job leaves it, around a plan that is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from perseus_ds.plan import read_plans
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, Summary, write_summary


def leave_run(path: Path, plan: Path) -> None:
    """Write events and a summary that say what plan 0 promises, and copy the plan."""
    path.mkdir(parents=True)
    plans, files = read_plans(plan), RunDirectory(path)
    shutil.copy(plan, files.plan)
    facts = {"event": "attached", "mode": "run", "replicas": 1, "run": "r1", "host": "node-1"}
    append_event(files.events, "attached", {key: value for key, value in facts.items() if key != "event"})
    baseline, chosen = plans.baseline, plans.plan(0)
    sides = (
        MeasuredSide(baseline.iteration_time_s, baseline.energy_j, 12, 0.01, 1.0, 10),
        MeasuredSide(chosen.iteration_time_s, chosen.energy_j, 40, 0.01, 1.0, 38),
    )
    found = Summary(*sides, True, chosen.saving_pct, {"run": "r1", "plan": 0, "gpu": "a" * 60})
    write_summary(found, files.summary)
