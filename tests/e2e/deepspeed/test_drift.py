"""One stage's GPU becomes 3 % slower under the plan: found by all, measured again in place, planned anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import events
from ranks import Said, batches, build, run_ranks
from replicas import planned_job

from perseus_ds.device.simulated import opened
from perseus_ds.plan import read_plans
from perseus_ds.profile import Profile, read_profile
from perseus_ds.runtime.startup.activation import session_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORWARD_S = (0.4, 0.5)
SLOW_STAGE, SLOWER = 1, 1.03
SLOW_FROM, ITERATIONS = 55, 90


@dataclass(frozen=True)
class Trained:
    """What one rank saw: its losses, and in which iterations a plan ran."""

    losses: list[str]
    planned: list[bool]


@dataclass(frozen=True)
class Job:
    """A job whose plan and profile were there, and both after it."""

    run_dir: Path
    said: list[Said]
    before: Profile
    after: Profile

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in events(self.run_dir) if event["event"] == name]


def train(rank: int, content: Mapping[str, Any]) -> Trained:
    engine, data, trained = build(content, stages=len(FORWARD_S)), batches(), Trained([], [])
    for index in range(ITERATIONS):
        if rank == SLOW_STAGE and index >= SLOW_FROM:
            opened()[-1].slowness = SLOWER
        session = session_of(engine)
        trained.planned.append(session is not None and session.lifecycle.active_plan is not None)
        trained.losses.append(float(engine.train_batch(data)).hex())
    return trained


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return planned_job(
        tmp_path_factory.mktemp("drift"),
        ranks=len(FORWARD_S),
        forward_s=FORWARD_S,
        perseus={
            "mode": "automatic",
            "profile": {"warmup_iterations": 2, "settle_s": 0.0, "drift": "automatic"},
        },
        profiled=True,
    )


@pytest.fixture(scope="module")
def job(content: dict[str, Any]) -> Job:
    run_dir = Path(content["perseus"]["run_dir"])
    before = read_profile(run_dir / "profile.json")
    said = run_ranks(len(FORWARD_S), train, content)
    return Job(run_dir, said, before, read_profile(run_dir / "profile.json"))


def trained(said: Said) -> Trained:
    assert isinstance(said.value, Trained)
    return said.value


def test_all_ranks_leave_the_plan_at_the_same_iteration_within_20(job: Job) -> None:
    planned = trained(job.said[0]).planned
    assert planned == trained(job.said[1]).planned
    assert all(planned[5:SLOW_FROM])
    assert 0 < planned.index(False, SLOW_FROM) - SLOW_FROM <= 20


def test_the_line_names_the_stage_and_by_how_much(job: Job) -> None:
    (drift,) = job.named("drift")
    assert list(drift["moved"]) == [str(SLOW_STAGE)]
    assert drift["moved"][str(SLOW_STAGE)]["time"] == pytest.approx(SLOWER - 1.0, abs=0.007)
    assert drift["line"] in job.said[0].output
    assert "stage 1: +" in drift["line"]
    assert "work lasts longer at the same power" in drift["line"]


def test_only_what_moved_is_measured_again(job: Job) -> None:
    for key, points in job.before.points.items():
        if key[0] != SLOW_STAGE:
            assert job.after.points[key] == points
            continue
        for old, new in zip(points, job.after.points[key], strict=True):
            assert new.time_s / old.time_s == pytest.approx(SLOWER, abs=0.006)
            assert new.time_se_s > old.time_se_s


def test_the_job_is_planned_anew_and_runs_it(job: Job) -> None:
    first, second = job.named("running")
    assert trained(job.said[0]).planned[-1]
    assert second["iteration_time_s"] / first["iteration_time_s"] == pytest.approx(1.024, abs=0.008)
    plans = read_plans(job.run_dir / "plan.json")
    assert float(plans.iteration_time_s[second["plan"]]) == pytest.approx(second["iteration_time_s"])


@pytest.mark.slow
def test_losses_are_those_of_a_job_that_looks_for_no_drift(job: Job, content: dict[str, Any]) -> None:
    blind = content | {"perseus": content["perseus"] | {"profile": {"drift": "never"}}}
    for mine, theirs in zip(job.said, run_ranks(len(FORWARD_S), train, blind), strict=True):
        assert trained(mine).losses == trained(theirs).losses
