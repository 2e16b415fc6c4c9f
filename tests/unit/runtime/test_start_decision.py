"""The start decision as a table: mode, contents of the run directory, abilities of the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from schedules import two_plans

from perseus_ds.config import PerseusConfig, ProfileSettings
from perseus_ds.errors import PlanError
from perseus_ds.plan import loads, write_plans
from perseus_ds.profile import Point, Profile, write_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.plans import StartAction, StartDecision, decide
from perseus_ds.schedule import Kind, textbook

JOB = Job(0, 2, 0, 0, textbook("1f1b", stages=2, microbatches=1), two_plans().fingerprint)
LARGER = replace(JOB, fingerprint={**JOB.fingerprint, "microbatches": "2"})
SHRUNK = replace(JOB, fingerprint={**JOB.fingerprint, "replicas": "1"})
OTHER = replace(JOB, fingerprint={**JOB.fingerprint, "gpu": "H100"})


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def leave_plan(directory: RunDirectory) -> None:
    write_plans(two_plans(), directory.plan)


def leave_profile(directory: RunDirectory) -> None:
    points = {
        (stage, kind): (Point(1400, 1.0, 300.0),)
        for stage in (0, 1)
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    write_profile(Profile(points, fingerprint=dict(JOB.profile_fingerprint)), directory.profile)


def opened(
    directory: RunDirectory, job: Job = JOB, *, can_lock: bool = True, **settings: object
) -> StartDecision:
    config = replace(PerseusConfig(enabled=True), **settings)  # type: ignore[arg-type]
    return decide(config, job, directory, can_lock=can_lock, why_not="" if can_lock else "no rights")


@pytest.mark.parametrize(
    ("mode", "job", "move"),
    [
        ("automatic", JOB, StartAction.RUN),
        ("automatic", LARGER, StartAction.PLAN),
        ("automatic", SHRUNK, StartAction.RUN),
        ("automatic", OTHER, StartAction.PROFILE),
        ("run", JOB, StartAction.RUN),
        ("profile", JOB, StartAction.PROFILE),
        ("observe", JOB, StartAction.OBSERVE),
        ("observe", OTHER, StartAction.OBSERVE),
    ],
)
def test_with_plan_and_profile(directory: RunDirectory, mode: str, job: Job, move: StartAction) -> None:
    leave_plan(directory)
    leave_profile(directory)
    start = opened(directory, job, mode=mode)
    assert start.action is move
    assert bool(start.plans) == (move is StartAction.RUN or (mode == "observe" and job is JOB))


@pytest.mark.parametrize(
    ("mode", "move"),
    [("automatic", StartAction.PROFILE), ("profile", StartAction.PROFILE), ("observe", StartAction.OBSERVE)],
)
def test_with_nothing(directory: RunDirectory, mode: str, move: StartAction) -> None:
    assert opened(directory, mode=mode).action is move


def test_with_a_profile_alone(directory: RunDirectory) -> None:
    leave_profile(directory)
    assert opened(directory).action is StartAction.PLAN
    assert opened(directory, profile=ProfileSettings(reuse=False)).action is StartAction.PROFILE


def test_a_device_that_locks_nothing_is_observed(directory: RunDirectory) -> None:
    leave_plan(directory)
    start = opened(directory, can_lock=False, mode="run")
    assert start.action is StartAction.OBSERVE
    assert "no rights" in start.reason
    assert start.plans


def test_the_plan_for_everyone_is_the_plan_of_the_file(directory: RunDirectory) -> None:
    leave_plan(directory)
    assert loads(opened(directory).plans).fingerprint == two_plans().fingerprint


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\x80\xff" * 9, b'{"format": "other"}'])
def test_a_damaged_plan_is_planned_again_or_refused(directory: RunDirectory, damage: bytes) -> None:
    directory.plan.write_bytes(damage)
    start = opened(directory)
    assert start.action is StartAction.PROFILE
    assert str(directory.plan) in start.reason
    with pytest.raises(PlanError, match=r"plan\.json"):
        opened(directory, mode="run")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\x80\xff" * 9])
def test_a_damaged_profile_is_measured_again(directory: RunDirectory, damage: bytes) -> None:
    directory.profile.write_bytes(damage)
    assert opened(directory).action is StartAction.PROFILE


def test_a_shared_directory_is_no_reason_to_stop(directory: RunDirectory) -> None:
    leave_plan(directory)
    directory.path.chmod(0o777)
    directory.plan.chmod(0o666)
    assert opened(directory).action is StartAction.RUN


def test_a_link_to_a_plan_of_ours_is_followed(directory: RunDirectory, tmp_path: Path) -> None:
    leave_plan(directory)
    directory.plan.rename(tmp_path / "elsewhere.json")
    directory.plan.symlink_to(tmp_path / "elsewhere.json")
    assert opened(directory).action is StartAction.RUN


def test_run_without_a_plan_says_what_to_do(directory: RunDirectory) -> None:
    with pytest.raises(PlanError, match=r"perseus\.mode is 'run'") as refused:
        opened(directory, mode="run")
    assert "automatic" in str(refused.value.hint)


def test_run_with_another_jobs_plan_says_where_they_differ(directory: RunDirectory) -> None:
    leave_plan(directory)
    with pytest.raises(PlanError, match=r"gpu .*A100.*H100"):
        opened(directory, OTHER, mode="run")


def test_differences_name_every_key() -> None:
    ours = {"gpu": "A100", "stages": "2", "driver": "1"}
    assert differences(ours, ours) == ""
    gpu, driver = differences(ours, {"gpu": "H100", "stages": "2"}).split("; ")
    assert "H100" in gpu.partition("A100")[0]
    assert driver.startswith("driver ")


def test_a_setting_of_power_differs_only_from_another_one() -> None:
    ours = {"gpu": "A100", "power_limit": "300 W"}
    assert differences(ours, {"gpu": "A100"}) == "", "older files and some drivers do not state it"
    told = differences(ours, {"gpu": "A100", "power_limit": "400 W"})
    assert told.startswith("power_limit ")
    assert "400 W" in told.partition("300 W")[0]
