"""Make the picture of README and site: a job emulated at default clocks and at its plan, then reported.

Run: ``python scripts/docs/pictures.py PROFILE [--microbatches 12] [--pipelines 4] [-o docs/images]``.
A headless Chromium photographs the report's own figure.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from perseus_ds.plan import PlanSet, build, write_plans
from perseus_ds.plan.clock_requests import Played, play, play_baseline
from perseus_ds.profile import Profile, read_profile, write_profile
from perseus_ds.report import write_report
from perseus_ds.report.figures import figures
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import (
    MeasuredSide,
    RecordedIteration,
    Span,
    Summary,
    write_summary,
    write_timelines,
)
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Emulated, Emulator, means

GPU = "a100-sxm4-80gb"
BLOCKING_W = 83.64
ITERATIONS = 20
FIGURE, SIZE = "timeline", (1180, 790)
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


def main() -> None:
    """Plan, emulate, report, and keep the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--pipelines", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    profile = read_profile(options.profile)
    schedule = textbook("1f1b", stages=profile.stages, microbatches=options.microbatches)
    plans = build(profile, schedule, blocking_power_w=BLOCKING_W, fingerprint={"gpu": f"simulated {GPU}"})
    with tempfile.TemporaryDirectory() as folder:
        _write_run(Path(folder), profile, plans, options.pipelines)
        contents = load_run(Path(folder))
        page, *_ = write_report(contents, figures(contents))
        options.output.mkdir(parents=True, exist_ok=True)
        _photograph(page, options.output / f"{FIGURE}.png")


def _photograph(page: Path, picture: Path) -> None:
    """Leave one figure of the page as a PNG, at twice the resolution."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *CHROMIUM,
                f"--user-data-dir={profile}",
                "--window-size={},{}".format(*SIZE),
                "--force-device-scale-factor=2",
                "--virtual-time-budget=5000",
                f"--screenshot={picture.resolve()}",
                f"{page.as_uri()}#only={FIGURE}",
            ],
            check=True,
            timeout=120,
        )


def _write_run(folder: Path, profile: Profile, plans: PlanSet, pipelines: int) -> None:
    """Leave what a job would, from two emulated runs; changes of clock are free, nothing is noisy."""
    plan = plans.plan(0)
    emulator = Emulator(plans, profile, ClusterShape(pipelines=pipelines))
    before = emulator.play(ITERATIONS, always=DEFAULT_CLOCKS)
    after = emulator.play(ITERATIONS)
    files = RunDirectory(folder)
    write_profile(profile, files.profile)
    write_plans(plans, files.plan)
    facts = {"gpu": GPU, "gpus": after.gpus, "plan": plan.index}
    write_summary(Summary(_measured(before), _measured(after), True, plan.saving_pct, facts), files.summary)
    drawn = [
        _timeline("baseline", play_baseline(plans), plans.baseline.iteration_time_s),
        _timeline("perseus", play(plan), plan.iteration_time_s),
    ]
    write_timelines(drawn, files.timelines)
    append_event(files.events, "running", {"plan": plan.index})


def _measured(found: Emulated) -> MeasuredSide:
    return MeasuredSide(*means(found), found.iterations)


def _timeline(name: str, played: list[Played], iteration_s: float) -> RecordedIteration:
    spans = tuple(
        Span(p.instruction, p.start_s, p.duration_s, p.clock_mhz, p.energy_j / p.duration_s) for p in played
    )
    return RecordedIteration(name, iteration_s, BLOCKING_W, simulated=True, spans=spans)


if __name__ == "__main__":
    main()
