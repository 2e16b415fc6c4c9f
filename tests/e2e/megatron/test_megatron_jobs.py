"""Jobs of megatron-core with us inside: every pass is heard; whole ones are profiled, planned, measured."""

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from adapter_contract import Noting
from jobs import SURE, agreed, block, events, happened, lines, names
from ranks import run_ranks
from replicas import Book, slowness

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape, adapter_of

import perseus_ds
from perseus_ds.adapters.megatron import PASSES, STEPS
from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile
from perseus_ds.runtime.adapter import Batch, Place
from perseus_ds.runtime.job import coupled_sets
from perseus_ds.schedule import Kind, Schedule
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = pytest.mark.e2e

# The derived order on every rank, and not one bit of training changed.

ITERATIONS_HEARD = 3
SHAPES = {
    "1F1B 4 x 8": Shape(4, microbatches=8),
    "1F1B 4 x 2, fewer microbatches than ranks": Shape(4, microbatches=2),
    "interleaved 4 x 2 x 8, overlapped": Shape(4, 2, 8, overlap_p2p=True),
    "interleaved 2 x 3 x 9, groups of 3": Shape(2, 3, 9, group=3, overlap_p2p=True),
    "1F1B 2 x 4 x 2 replicas, overlapped reduction": Shape(2, microbatches=4, data=2, overlap_reduce=True),
    "no pipeline, 2 replicas": Shape(microbatches=4, data=2, distributed_optimizer=True),
    "2 expert x 2 pipeline ranks": Shape(2, microbatches=4, data=2, experts=2),
    "2 context x 2 pipeline ranks": Shape(2, microbatches=4, context=2),
    "sequences of several lengths": Shape(2, microbatches=4, settings={"variable_seq_lengths": True}),
    "2 expert ranks, no pipeline": Shape(microbatches=4, data=2, experts=2),
}
LARGE = {
    "2 pipeline x 2 data x 2 tensor ranks": Shape(2, microbatches=4, data=2, tensor=2),
    "2 sets of 2 expert ranks, 2 stages": Shape(2, microbatches=4, data=4, experts=2),
}

Told = tuple[Place, Schedule, Noting]


def everyone(place: Place) -> list[Place]:
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, place)
    return places


def trained(job: Job) -> tuple[list[list[str]], str]:
    return [job.step() for _ in range(ITERATIONS_HEARD)], job.weights()


def both_ways(rank: int, shape: Shape) -> tuple[bool, Told]:
    plain, job = trained(Job(shape)), Job(shape)
    adapter, noting = adapter_of(job), Noting()
    place = adapter.place()
    schedule = adapter.schedule(everyone(place))
    adapter.install(noting)
    job.run_pass = job.schedules.get_forward_backward_func()
    served = trained(job)
    adapter.remove()
    return served == plain, (place, schedule, noting)


@pytest.mark.parametrize(
    "shape",
    [*SHAPES.values(), *(pytest.param(shape, marks=pytest.mark.slow) for shape in LARGE.values())],
    ids=[*SHAPES, *LARGE],
)
def test_the_derived_order_runs_and_nothing_else_changes(shape: Shape) -> None:
    same, told = zip(*(said.value for said in run_ranks(shape.ranks, both_ways, shape)), strict=True)
    assert all(same)
    assert len(coupled_sets([place for place, _, _ in told])) == shape.data // shape.experts
    for rank, (place, schedule, noting) in enumerate(told):
        order = schedule.orders[place.pipeline_rank]
        wanted = [i.kind for i in order if i.kind.is_computation or i.kind is Kind.REDUCE_GRADS]
        for iteration in noting.iterations:
            assert iteration.kinds == wanted, f"rank {rank}"
            assert (iteration.ended, iteration.unpaired) == ("ends", False)
            assert iteration.batch == Batch(shape.microbatches, "2 x 8")
        assert len(noting.iterations) == ITERATIONS_HEARD


# Whole jobs: found by the module, profiled, planned, run, measured.

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
