"""Two pipelines of torch's side by side, one 1.2 times slower for a while, in virtual time: FSDP2 and DDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import events, lines
from pipelines import Pipeline
from ranks import Said, run_ranks
from replicas import Book, slowness
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.plan import read_plans
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RANKS, REPLICAS, STRAGGLER, SLOWDOWN = 4, 2, 1, 1.2
SLOW_FROM, SLOW_TO, ITERATIONS = 12, 36, 48


def block(run_dir: Path) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 8.0, "max_clocks": 5, "warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": [0.4, 0.5]},
    }


def fsdp2(mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    return fully_shard(module, mesh=mesh, reshard_after_forward=False)


def ddp(mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module, process_group=mesh.get_group())


def pipeline_of(wrap: str) -> tuple[Pipeline, int]:
    """This rank's pipeline, and which it is."""
    mesh = init_device_mesh("cpu", (REPLICAS, RANKS // REPLICAS), mesh_dim_names=("replica", "pipeline"))
    wrapped = {"fsdp2": fsdp2, "ddp": ddp}[wrap]
    group = mesh["pipeline"].get_group()
    pipeline = Pipeline("1F1B", 4, group=group, wrap=lambda module: wrapped(mesh["replica"], module))
    return pipeline, mesh["replica"].get_local_rank()


def straggle(rank: int, run_dir: Path) -> Book:
    """Profile, plan, and train so many iterations at the plan."""
    pipeline, replica = pipeline_of("fsdp2")
    perseus_ds.attach(pipeline.schedule, config=block(run_dir))
    book = Book()
    mine = [(SLOW_FROM, SLOW_TO, SLOWDOWN)] if replica == STRAGGLER else []
    while len(book.plans) < ITERATIONS:
        for gpu in opened_gpus():
            gpu.slowness = slowness(mine, len(book.plans))
        active_plan = book.begin(pipeline.schedule)
        book.losses += pipeline.train()
        book.end(active_plan)
    book.attached = "step" in vars(pipeline.schedule)
    return book


def plain(rank: int, iterations: int) -> list[str]:
    pipeline, _ = pipeline_of("fsdp2")
    return [loss for _ in range(iterations) for loss in pipeline.train()]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("pipelining") / "run"
    return run_dir, run_ranks(RANKS, straggle, run_dir)


def test_the_other_waits_and_is_back(job: tuple[Path, list[Said]]) -> None:
    run_dir, said = job
    book = said[0].value
    index = FrontierIndex.of(read_plans(run_dir / "plan.json"), Objective())
    assert all(one.value.plans == book.plans for one in said)
    assert all(one.value.attached for one in said)
    waiting = [row[1 - STRAGGLER] for row in book.plans]
    assert set(waiting[:SLOW_FROM]) == {index.objective}
    first = next(n for n in range(SLOW_FROM, SLOW_TO) if waiting[n] != index.objective)
    assert 0 < first - (SLOW_FROM + 1) <= 3
    assert index.objective not in waiting[first:SLOW_TO]
    back = next(n for n in range(SLOW_TO, ITERATIONS) if waiting[n] == index.objective)
    assert back - SLOW_TO <= 2
    assert set(waiting[back:]) == {index.objective}


def test_losses_are_identical_to_the_last_bit(job: tuple[Path, list[Said]]) -> None:
    _, said = job
    fewest = min(len(one.value.losses) for one in said if one.value.losses)
    without = run_ranks(RANKS, plain, 10)
    for one, other in zip(said, without, strict=True):
        assert one.value.losses[: min(fewest, 40)] == other.value[:40]


def look(rank: int, run_dir: Path) -> None:
    pipeline, _ = pipeline_of("ddp")
    perseus_ds.attach(pipeline.schedule, config=block(run_dir) | {"mode": "observe"})
    for _ in range(3):
        pipeline.train()


def test_beside_ddp_stragglers_are_not_answered_and_that_is_said(tmp_path: Path) -> None:
    said = run_ranks(RANKS, look, tmp_path / "run")
    assert [line for line in lines(said[0]) if "stragglers" in line]
    assert events(tmp_path / "run")[0]["replicas"] == REPLICAS
