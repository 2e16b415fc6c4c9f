"""How long does a large report take, and how large is its page? Emulated; CPU seconds of this process.

Run: ``python scripts/bench/report/main.py PROFILE [--stages 16] [--microbatches 256]``
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from perseus_ds.plan import PlanSet, build, write_plans
from perseus_ds.plan.playing.play import Played, play, play_baseline
from perseus_ds.profile import Profile, read_profile, write_profile
from perseus_ds.report import write_report
from perseus_ds.report.contents import read_contents
from perseus_ds.report.contents.figures import figures
from perseus_ds.run_directory import (
    MeasuredSide,
    RecordedIteration,
    RunDirectory,
    Span,
    Summary,
    append_event,
    write_summary,
    write_timelines,
)
from perseus_ds.schedule import textbook

BLOCKING_W = 83.64


def main() -> int:
    """Plan, leave what a job leaves, report; print what took how long and became how large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=256)
    options = parser.parse_args()
    profile = _stretched(read_profile(options.profile), options.stages)
    schedule = textbook("1f1b", stages=options.stages, microbatches=options.microbatches)
    plans = build(profile, schedule, blocking_power_w=BLOCKING_W)
    with tempfile.TemporaryDirectory() as folder:
        _leave(RunDirectory(Path(folder)), profile, plans)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        contents = read_contents(Path(folder))
        paths = write_report(contents, figures(contents))
        found = {
            "cpu_s": round(time.process_time() - began_cpu_s, 2),
            "wall_s": round(time.perf_counter() - began_s, 2),
            "bytes": {path.name: path.stat().st_size for path in paths},
        }
    print(json.dumps(found, indent=1))
    return 0


def _stretched(profile: Profile, stages: int) -> Profile:
    """Give every stage the measurements of the one at its part of the pipeline, a little apart."""
    points = {
        (stage, kind): tuple(
            replace(point, time_s=share * point.time_s, energy_j=share * point.energy_j) for point in found
        )
        for stage in range(stages)
        for share in [1.0 + 0.004 * (7 * stage % 16)]
        for (place, kind), found in profile.points.items()
        if place == stage * profile.stages // stages
    }
    return Profile(points, blocking_power_w=BLOCKING_W)


def _leave(files: RunDirectory, profile: Profile, plans: PlanSet) -> None:
    plan, baseline = plans.plan(0), plans.baseline
    write_profile(profile, files.profile)
    write_plans(plans, files.plan)
    before = MeasuredSide(baseline.iteration_time_s, baseline.energy_j, 30)
    after = MeasuredSide(plan.iteration_time_s, plan.energy_j, 30)
    facts = {"gpus": plans.schedule.ranks, "plan": 0}
    write_summary(Summary(before, after, True, plan.saving_pct, facts), files.summary)
    played = [
        _timeline("baseline", play_baseline(plans), baseline.iteration_time_s),
        _timeline("perseus", play(plan), plan.iteration_time_s),
    ]
    write_timelines(played, files.timelines)
    append_event(files.events, "running", {"plan": 0})


def _timeline(name: str, played: list[Played], iteration_s: float) -> RecordedIteration:
    spans = tuple(
        Span(p.instruction, p.start_s, p.duration_s, p.clock_mhz, p.energy_j / p.duration_s) for p in played
    )
    return RecordedIteration(name, iteration_s, BLOCKING_W, simulated=True, spans=spans)


if __name__ == "__main__":
    sys.exit(main())
