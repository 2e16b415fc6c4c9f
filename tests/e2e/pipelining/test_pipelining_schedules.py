"""Schedules of torch.distributed.pipelining, really run: what we hear, beside FSDP2 and DDP as well."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from adapter_contract import Noting
from jobs import events, lines
from pipelines import SCHEDULES, Pipeline, calls_of
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import perseus_ds
from perseus_ds.adapters.torch_pipelining import PipeliningAdapter, check
from perseus_ds.runtime.adapter import Place, SyncPoint
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import Kind, dag_of

pytestmark = pytest.mark.e2e

STEPS = 3
RANKS, MICROBATCHES = 4, 8
EVALUATES = ("1F1B", "GPipe", "Interleaved", "LoopedBFS")  # torch's own evaluation fails in the others


@dataclass(frozen=True)
class Heard:
    same: bool
    called: list[str]
    place: Place
    noting: Noting
    clean: bool


def train(pipeline: Pipeline) -> tuple[list[list[str]], str]:
    return [pipeline.train() for _ in range(STEPS)], pipeline.weights()


def both_ways(rank: int, name: str) -> Heard:
    plain, pipeline = train(Pipeline(name, MICROBATCHES)), Pipeline(name, MICROBATCHES)
    called, held = calls_of(pipeline), [pipeline.schedule, *pipeline.stages]
    before = [dict(vars(one)) for one in held]
    adapter, noting = PipeliningAdapter(check(pipeline.schedule)), Noting()
    adapter.install(noting)
    same = train(pipeline) == plain
    if name in EVALUATES:
        pipeline.evaluate()
    adapter.remove()
    ours = {"step", "_maybe_compute_loss", *(n for n in dir(pipeline.stages[0]) if n.endswith("_chunk"))}
    clean = all(
        vars(one).get(key) is old.get(key)
        for one, old in zip(held, before, strict=True)
        for key in ours | {"perform_reduce_grad"}
    )
    return Heard(same, called, adapter.place(), noting, clean)


@pytest.mark.parametrize("name", SCHEDULES)
def test_heard_is_what_the_order_says_and_what_torch_ran(name: str) -> None:
    """And all ranks together make one schedule that runs to its end."""
    heard = [one.value for one in run_ranks(RANKS, both_ways, name)]
    for one in heard:
        assert one.same
        order = [instruction for instruction in one.place.order if instruction.kind.is_computation]
        assert [iteration.kinds for iteration in one.noting.iterations] == [[i.kind for i in order]] * STEPS
        assert not any(iteration.unpaired for iteration in one.noting.iterations)
        assert one.called[: STEPS * len(order)] == [str(instruction) for instruction in order] * STEPS
        assert one.clean
        assert one.noting.others == (1 if name in EVALUATES else 0)
    schedule = join_orders([one.place for one in heard], name=name)
    assert (schedule.microbatches, schedule.ranks) == (MICROBATCHES, RANKS)
    assert schedule.stages == RANKS * SCHEDULES[name][1]
    dag = dag_of(schedule)
    assert len(dag.topological()) == len(dag.nodes)


# The replica of each rank, by FSDP2: 8 ranks without communication, and 2 x 2 that train.

# Prints, for every rank of a mesh of 2 x 2 x 2 and every way to wrap a stage, what we make of it.
PROGRAM = """
import json
from types import SimpleNamespace
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from perseus_ds.adapters.torch_pipelining import data_parallel_of

def told(module):
    try:
        found = data_parallel_of([SimpleNamespace(submod=module)])
    except Exception as error:
        return str(error)
    return [found.name, found.replica, found.replicas, found.reduces, found.gathers]

def layers():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

answers = []
for rank in range(8):
    distributed.init_process_group("fake", rank=rank, world_size=8, store=FakeStore())
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("data", "pipeline", "tensor"))
    hybrid = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("copy", "shard", "pipeline"))
    inner = layers()
    fully_shard(inner[0], mesh=mesh["data"])
    experts = layers()
    fully_shard(experts[0], mesh=mesh["tensor"])
    resharding = fully_shard(layers(), mesh=mesh["data"], reshard_after_forward=True)
    answers.append({
        "FSDP2": told(fully_shard(layers(), mesh=mesh["data"], reshard_after_forward=False)),
        "hybrid": told(fully_shard(layers(), mesh=hybrid["copy", "shard"], reshard_after_forward=False)),
        "left to FSDP2": told(fully_shard(layers(), mesh=mesh["data"])),
        "resharding": told(resharding),
        "resharding layers": told(fully_shard(inner, mesh=mesh["data"])),
        "experts": told(fully_shard(experts, mesh=mesh["data"])),
        "bare": told(layers()),
    })
    distributed.destroy_process_group()
print(json.dumps(answers))
"""


def test_replicas_are_those_of_the_mesh_and_gathers_are_told() -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr[-2000:]
    answers = json.loads(told.stdout.splitlines()[-1])
    replicas = {
        "FSDP2": (2, [0, 0, 0, 0, 1, 1, 1, 1]),  # tensor-parallel peers are one replica
        "hybrid": (4, [0, 0, 1, 1, 2, 2, 3, 3]),  # copies and shards are counted together
    }
    for name, (count, numbers) in replicas.items():
        assert [one[name] for one in answers] == [["FSDP2", number, count, True, False] for number in numbers]
    assert [one["bare"] for one in answers] == [["none", 0, 1, False, False]] * 8
    assert answers[0]["left to FSDP2"] == ["FSDP2", 0, 2, True, False]
    for name in ("resharding", "resharding layers"):
        assert answers[0][name] == ["FSDP2", 0, 2, True, True]
    assert "expert parallelism" in answers[1]["experts"]


def two_by_two(name: str, wrap: Callable[[DeviceMesh, nn.Module], nn.Module]) -> Pipeline:
    """Two replicas of a pipeline of two ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "pipeline"))
    group = mesh["pipeline"].get_group()
    return Pipeline(name, 4, group=group, wrap=lambda module: wrap(mesh["replica"], module))


def fsdp2(mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    return fully_shard(module, mesh=mesh, reshard_after_forward=False)


def ddp(mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module, process_group=mesh.get_group())


def beside_fsdp2(rank: int, name: str) -> tuple[bool, list[list[Kind]], Place, SyncPoint | None]:
    plain, pipeline = train(two_by_two(name, fsdp2)), two_by_two(name, fsdp2)
    adapter, noting = PipeliningAdapter(check(pipeline.schedule)), Noting()
    adapter.install(noting)
    same = train(pipeline) == plain
    return same, [one.kinds for one in noting.iterations], adapter.place(), adapter.sync_point


@pytest.mark.parametrize("name", ["GPipe", "Interleaved", "ZBV", "DualPipeV"])
def test_beside_fsdp2_the_reductions_are_heard_in_their_places(name: str) -> None:
    for rank, said in enumerate(run_ranks(4, beside_fsdp2, name)):
        same, kinds, place, sync_point = said.value
        assert same
        assert kinds == [[i.kind for i in place.order if i.kind is not Kind.STEP]] * STEPS
        assert kinds[0].count(Kind.REDUCE_GRADS) == (1 if name == "GPipe" else 2)
        assert (place.replica, place.pipeline_rank) == divmod(rank, 2)
        assert place.left_out
        assert sync_point is (SyncPoint.REDUCTION if name == "GPipe" else SyncPoint.UNMARKED)


def beside_ddp(rank: int, run_dir: Path) -> None:
    pipeline = two_by_two("1F1B", ddp)
    config = {"run_dir": str(run_dir), "device": "simulated", "mode": "observe"}
    perseus_ds.attach(pipeline.schedule, config=config)
    train(pipeline)


def test_beside_ddp_stragglers_are_not_answered_and_that_is_said(tmp_path: Path) -> None:
    said = run_ranks(4, beside_ddp, tmp_path)
    assert [line for line in lines(said[0]) if "stragglers" in line]
    assert events(tmp_path)[0]["replicas"] == 2


def sharded_otherwise(rank: int) -> list[tuple[str, dict[str, str]]]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    ways = [{}, {"reshard_after_forward": True}, {"mp_policy": policy}]
    pipelines = [Pipeline("1F1B", 4, wrap=partial(fully_shard, **way)) for way in ways]
    adapters = [PipeliningAdapter(check(pipeline.schedule)) for pipeline in pipelines]
    return [(adapter.place().modules, dict(adapter.traits())) for adapter in adapters]


def test_a_stage_that_is_sharded_otherwise_is_another_job() -> None:
    (said,) = run_ranks(1, sharded_otherwise)
    assert all(one not in said.value[:place] for place, one in enumerate(said.value))
