"""Run directories as jobs leave them, made through the record writers."""

from functools import partial
from pathlib import Path

import pytest
from cli_program import BLOCKING_W, WriteRun, points, recorded

from perseus_ds.plan import PlanSet, build, write_plans
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.profile import Profile, write_profile
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import (
    MeasuredSide,
    RecordedIteration,
    Summary,
    write_summary,
    write_timelines,
)
from perseus_ds.schedule import Kind, textbook

FINGERPRINT = {"gpu": "A100-SXM4-80GB", "simulated": "0123456789abcdef", "stages": "2"}


@pytest.fixture(scope="session")
def profile() -> Profile:
    measured = {
        (stage, kind): points(base_s * (1.0 + 0.3 * stage))
        for stage in range(2)
        for kind, base_s in ((Kind.FORWARD, 0.05), (Kind.BACKWARD, 0.1))
    }
    return Profile(measured, blocking_power_w=BLOCKING_W, fingerprint=FINGERPRINT)


@pytest.fixture(scope="session")
def plans(profile: Profile) -> PlanSet:
    schedule = textbook("1f1b", stages=2, microbatches=4)
    return build(profile, schedule, blocking_power_w=BLOCKING_W, fingerprint=FINGERPRINT)


@pytest.fixture(scope="session")
def timelines(plans: PlanSet) -> list[RecordedIteration]:
    plan = plans.plan(1)
    return [
        recorded("perseus", play(plan), plan.iteration_time_s),
        recorded("baseline", play_baseline(plans), plans.baseline.iteration_time_s),
    ]


@pytest.fixture(scope="session")
def run_writer(profile: Profile, plans: PlanSet, timelines: list[RecordedIteration]) -> WriteRun:
    """Write the named parts (all, unless named) into a directory; the events are always there."""

    def write(path: Path, *parts: str, events: list[dict[str, object]] | None = None) -> Path:
        files, wanted = RunDirectory(path), parts or ("profile", "plan", "summary", "timelines")
        for event in events if events is not None else [{"event": "running", "plan": 1}]:
            append_event(files.events, str(event["event"]), {k: v for k, v in event.items() if k != "event"})
            write_profile(profile, files.profile)
        if "plan" in wanted:
            write_plans(plans, files.plan)
        if "summary" in wanted:
            write_summary(_summary(), files.summary)
        if "timelines" in wanted:
            write_timelines(timelines, files.timelines)
        return files.path

    return write


@pytest.fixture
def write_run(tmp_path: Path, run_writer: WriteRun) -> WriteRun:
    """Write a run directory of this test's own."""
    return partial(run_writer, tmp_path / "run")


def _summary() -> Summary:
    return Summary(
        baseline=MeasuredSide(1.0, 1000.0, 12),
        perseus=MeasuredSide(1.002, 880.0, 40),
        simulated=True,
        predicted_saving_pct=12.5,
        facts={"gpu": "A100-SXM4-80GB", "gpus": 4, "plan": 1},
    )
