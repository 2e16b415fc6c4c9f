"""Whole jobs of megatron-core with us inside: found by the module, profiled, planned, run, measured."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import SURE, agreed, block, events, happened, lines, names
from ranks import run_ranks
from replicas import Book, slowness

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.adapters.megatron import PASSES, STEPS
from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD_BACKWARD)
COURSE = ["attached", "warming_up", "calibrated", "profiling", "profiled", "planning", "running", "measured"]


@dataclass(frozen=True)
class Trained:
    losses: list[list[str]]
    weights: str
    left: list[str]


def names_of(job: Job) -> dict[str, object]:
    chunks = {f"{number}": vars(chunk).get("finish_grad_sync") for number, chunk in enumerate(job.chunks)}
    return {name: getattr(job.schedules, name) for name in (*PASSES, *STEPS)} | chunks


def train(rank: int, shape: Shape, config: Mapping[str, Any] | None, steps: int) -> Trained:
    job, measured = Job(shape), happened("measured")
    before = names_of(job)
    if config is not None:
        perseus_ds.attach(job.schedules, config=config)
        perseus_ds.attach(job.schedules, config=config)
    job.run_pass = job.schedules.get_forward_backward_func()  # Megatron-LM keeps it for the whole training
    losses, finished = [], False
    while not finished:
        losses.append(job.step())
        if len(losses) in {3, 8}:
            job.call(forward_only=True)
        finished = len(losses) == steps or (config is not None and agreed(measured(Path(config["run_dir"]))))
    perseus_ds.detach(job.schedules)
    left = [name for name, thing in names_of(job).items() if thing is not before[name]]
    left += [thread.name for thread in threading.enumerate() if "perseus" in thread.name]
    losses.append(job.step())
    return Trained(losses, job.weights(), left)


def went_the_course(shape: Shape, run_dir: Path, **changes: object) -> dict[str, Any]:
    config = block(run_dir, straggler={"enabled": False}, **changes)  # a busy host makes some
    said = run_ranks(shape.ranks, train, shape, config, 2000)
    served = [one.value for one in said]
    plain = run_ranks(shape.ranks, train, shape, None, len(served[0].losses) - 1)
    assert served == [one.value for one in plain]
    assert [one.left for one in served] == [[]] * shape.ranks
    assert [name for name in dict.fromkeys(names(run_dir)) if name in COURSE] == COURSE
    assert [lines(one) for one in said[1:]] == [[]] * (len(said) - 1)
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    assert summary["measured"] is True
    return summary


def test_an_interleaved_job_of_two_replicas(tmp_path: Path) -> None:
    """Every model stage is measured and planned, and the job's identity names what its time depends on."""
    shape = Shape(2, 2, 4, data=2, overlap_p2p=True, overlap_reduce=True, distributed_optimizer=True)
    assert went_the_course(shape, tmp_path)["saving_pct"] > 0
    profile, plans = read_profile(tmp_path / "profile.json"), read_plans(tmp_path / "plan.json")
    assert set(profile.points) == {(stage, kind) for stage in range(4) for kind in KINDS[:2]}
    assert {(rank, Kind.STEP) for rank in range(2)} <= set(profile.fixed_s)
    assert len(plans) > 1
    assert plans.schedule.stages == 4
    fingerprint = events(tmp_path)[0]["fingerprint"]
    assert fingerprint["megatron"] == "0.16.1"
    assert fingerprint["microbatch"] == "2 x 8"
    assert "hidden_size=16" in fingerprint["transformer"].split()
    assert fingerprint["replicas"] == "2"
    assert "coupled" not in fingerprint


def test_forwards_and_backwards_at_once_are_planned_and_save_as_expected(tmp_path: Path) -> None:
    """Experts whose communication hides behind a forward and a backward at once, uneven stages."""
    summary = went_the_course(
        Shape(2, 2, 8, data=2, experts=2, overlap_p2p=True, combined=True),
        tmp_path,
        simulated={"forward_s": [0.36, 0.40, 0.36, 0.44]},
        profile={"min_window_s": 20.0, "warmup_iterations": 2},
        audit={"every_iterations": 4, "iterations": 6},
    )
    fingerprint = events(tmp_path)[0]["fingerprint"]
    assert (fingerprint["replicas"], fingerprint["coupled"]) == ("1", "2 pipelines")
    profile = read_profile(tmp_path / "profile.json")
    assert set(profile.points) == {(stage, kind) for stage in range(4) for kind in KINDS}
    both = [profile.of(stage, Kind.FORWARD_BACKWARD)[0].time_s for stage in range(4)]
    alone = [sum(profile.of(stage, kind)[0].time_s for kind in KINDS[:2]) for stage in range(4)]
    assert sum(both) == pytest.approx(0.9 * sum(alone), rel=0.02)
    assert summary["saving_pct"] > 8.0
    assert summary["slowdown_pct"] < 0.1 + SURE * summary["slowdown_se_pct"]
    error = math.hypot(summary["saving_se_pct"], summary["facts"]["predicted_saving_within_pct"] / 2.0)
    assert summary["saving_pct"] == pytest.approx(summary["predicted_saving_pct"], abs=SURE * error)


# Experts spread over replicas make coupled sets; one set is slower, in virtual time.

TWO_SETS = Shape(2, microbatches=4, data=4, experts=2)
SLOW_FROM, SLOW_TO, ITERATIONS = 8, 24, 32


def straggle(rank: int, run_dir: Path) -> Book:
    job, book = Job(TWO_SETS), Book()
    config = {
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 8.0, "max_clocks": 5, "warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": [0.4, 0.5]},
    }
    perseus_ds.attach(job.schedules, config=config)
    job.run_pass = job.schedules.get_forward_backward_func()
    spells = [(SLOW_FROM, SLOW_TO, 1.2)] if rank == 3 else []
    while len(book.plans) < ITERATIONS:
        for gpu in opened_gpus():
            gpu.slowness = slowness(spells, len(book.plans))
        active_plan = book.begin(job.schedules)
        book.losses += job.step()
        book.end(active_plan)
    return book


def test_one_slow_gpu_slows_its_set_and_the_other_set_waits(tmp_path: Path) -> None:
    said = run_ranks(TWO_SETS.ranks, straggle, tmp_path)
    book = said[0].value
    assert all(one.value.plans == book.plans for one in said)
    assert {len(row) for row in book.plans} == {2}, "two sets of two replicas"
    objective = FrontierIndex.of(read_plans(tmp_path / "plan.json"), Objective()).objective
    waiting, slow = zip(*book.plans, strict=True)
    assert set(waiting[:SLOW_FROM]) == {objective}
    first = next(n for n in range(SLOW_FROM, SLOW_TO) if waiting[n] != objective)
    assert first - (SLOW_FROM + 1) <= 3
    assert objective not in waiting[first:SLOW_TO]
    assert set(waiting[SLOW_TO + 2 :]) == {objective}
    assert set(slow) == {objective}, "nobody of the slow set waits"
    assert ["straggler: set 1 (replicas 2, 3)" in line for line in lines(said[0])].count(True) == 1
