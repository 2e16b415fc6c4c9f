"""Whole jobs of megatron-core with us inside: found by the module, profiled, planned, run, measured."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import SURE, agreed, block, events, happened, lines, names, watched_gpus
from ranks import Said, run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.adapters.megatron import PASSES, STEPS
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Done = Callable[[Path], bool]


@dataclass(frozen=True)
class Trained:
    losses: list[list[str]]
    weights: str
    locks: int
    left: list[str]


def names_of(job: Job) -> dict[str, object]:
    """Everything that we may replace."""
    chunks = {f"{number}": vars(chunk).get("finish_grad_sync") for number, chunk in enumerate(job.chunks)}
    return {name: getattr(job.schedules, name) for name in (*PASSES, *STEPS)} | chunks


def train(
    rank: int,
    shape: Shape,
    config: Mapping[str, Any] | None,
    done: Done | int,
    evaluates: bool = False,  # noqa: FBT001, FBT002
) -> Trained:
    """Train until something has happened (or so often), evaluate in between, detach, train once more."""
    gpus = watched_gpus()
    job = Job(shape)
    before = names_of(job)
    if config is not None:
        perseus_ds.attach(job.schedules, config=config)
        perseus_ds.attach(job.schedules, config=config)
    job.run_pass = job.schedules.get_forward_backward_func()  # Megatron-LM keeps it for the whole training
    losses, finished = [], False
    while not finished:
        losses.append(job.step())
        if evaluates and len(losses) in {3, 8}:
            job.call(forward_only=True)
        if isinstance(done, int):
            finished = len(losses) == done
        else:
            finished = agreed(done(Path(config["run_dir"])), False) if config else True
    perseus_ds.detach(job.schedules)
    left = [name for name, thing in names_of(job).items() if thing is not before[name]]
    left += [thread.name for thread in threading.enumerate() if "perseus" in thread.name]
    losses.append(job.step())
    return Trained(losses, job.weights(), gpus.locks, left)


def plain(shape: Shape, steps: int) -> list[Trained]:
    return [said.value for said in run_ranks(shape.ranks, train, shape, None, steps)]


SHAPES = {
    "1F1B": Shape(2, microbatches=4, layers_per_chunk=2),
    "interleaved": Shape(2, 2, 4, overlap_p2p=True),
    "2 replicas": Shape(2, microbatches=4, data=2, overlap_reduce=True, distributed_optimizer=True),
    "2 expert x 2 pipeline ranks": Shape(2, microbatches=4, data=2, experts=2),
}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401
    """A job that went from an empty run directory to a measured saving."""
    run_dir = tmp_path_factory.mktemp("megatron") / "run"
    config = block(run_dir, straggler={"enabled": False})  # a busy host makes some
    said = run_ranks(request.param.ranks, train, request.param, config, happened("measured"))
    return request.param, run_dir, said


Finished = tuple[Shape, Path, list[Said]]


COURSE = [
    "attached",
    "warming_up",
    "calibrated",
    "profiling",
    "profiled",
    "planning",
    "running",
    "measured",
    "ended",
]


def test_the_course_is_that_of_every_job(finished: Finished) -> None:
    _, run_dir, said = finished
    assert [name for name in dict.fromkeys(names(run_dir)) if name in COURSE] == COURSE
    assert [lines(one) for one in said[1:]] == [[]] * (len(said) - 1)


def test_training_is_what_it_would_be_without_us(finished: Finished) -> None:
    shape, _, said = finished
    served = [one.value for one in said]
    without = plain(shape, len(served[0].losses) - 1)
    assert [one.losses for one in served] == [one.losses for one in without]
    assert [one.weights for one in served] == [one.weights for one in without]


def test_detaching_leaves_no_trace(finished: Finished) -> None:
    assert [one.value.left for one in finished[2]] == [[]] * len(finished[2])


def test_every_model_stage_is_measured_and_planned(finished: Finished) -> None:
    shape, run_dir, _ = finished
    stages = range(shape.pipeline * shape.chunks)
    computations = {(stage, kind) for stage in stages for kind in (Kind.FORWARD, Kind.BACKWARD)}
    profile = read_profile(run_dir / "profile.json")
    assert set(profile.points) == computations
    assert {(rank, Kind.STEP) for rank in range(shape.pipeline)} <= set(profile.fixed_s)
    plans = read_plans(run_dir / "plan.json")
    assert len(plans) > 1
    assert plans.schedule.stages == len(stages)
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["measured"] is True
    assert summary["saving_pct"] > 0


def test_the_jobs_identity_names_what_its_time_depends_on(finished: Finished) -> None:
    shape, run_dir, _ = finished
    fingerprint = events(run_dir)[0]["fingerprint"]
    assert fingerprint["megatron"] == "0.16.1"
    assert fingerprint["microbatch"] == "2 x 8"
    assert "hidden_size=16" in fingerprint["transformer"].split()
    assert fingerprint["replicas"] == str(shape.data // shape.experts)
    assert fingerprint.get("coupled") == (f"{shape.experts} pipelines" if shape.experts > 1 else None)


def test_forwards_and_backwards_at_once_are_planned_and_save_as_expected(tmp_path: Path) -> None:
    """Experts whose communication hides behind a forward and a backward at once, uneven stages."""
    shape = Shape(2, 2, 8, data=2, experts=2, overlap_p2p=True, combined=True)
    config = block(
        tmp_path / "run",
        straggler={"enabled": False},
        simulated={"forward_s": [0.36, 0.40, 0.36, 0.44]},
        profile={"min_window_s": 20.0, "warmup_iterations": 2},
        audit={"every_iterations": 4, "iterations": 6},
    )
    said = run_ranks(shape.ranks, train, shape, config, happened("measured"))
    served = [one.value for one in said]
    without = plain(shape, len(served[0].losses) - 1)
    assert [(one.losses, one.weights) for one in served] == [(one.losses, one.weights) for one in without]
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD_BACKWARD)
    profile = read_profile(tmp_path / "run" / "profile.json")
    assert set(profile.points) == {(stage, kind) for stage in range(4) for kind in kinds}
    both = [profile.of(stage, Kind.FORWARD_BACKWARD)[0].time_s for stage in range(4)]
    alone = [sum(profile.of(stage, kind)[0].time_s for kind in kinds[:2]) for stage in range(4)]
    assert sum(both) == pytest.approx(0.9 * sum(alone), rel=0.02)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["saving_pct"] > 8.0
    assert summary["slowdown_pct"] < 0.1 + SURE * summary["slowdown_se_pct"]
    error = math.hypot(summary["saving_se_pct"], summary["facts"]["predicted_saving_within_pct"] / 2.0)
    assert summary["saving_pct"] == pytest.approx(summary["predicted_saving_pct"], abs=SURE * error)


def test_evaluations_run_apart_and_break_nothing(tmp_path: Path) -> None:
    shape, config = Shape(2), block(tmp_path / "run", mode="profile")
    said = run_ranks(2, train, shape, config, happened("profiled"), True)
    served = [one.value for one in said]
    without = [one.value for one in run_ranks(2, train, shape, None, len(served[0].losses) - 1, True)]
    assert [one.losses for one in served] == [one.losses for one in without]
    assert "profiled" in names(tmp_path / "run")
