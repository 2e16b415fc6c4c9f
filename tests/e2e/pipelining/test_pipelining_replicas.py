"""Which replica each rank is, as FSDP2 says: 8 ranks without communication, and 2 x 2 that train."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest
from adapter_contract import Noting
from pipelines import Pipeline
from ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from perseus_ds.adapters.torch_pipelining import PipeliningAdapter, check
from perseus_ds.runtime.adapter import SyncPoint
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

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


@pytest.fixture(scope="module")
def answers() -> list[Mapping[str, list[object] | str]]:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr[-2000:]
    found: list[Mapping[str, list[object] | str]] = json.loads(told.stdout.splitlines()[-1])
    return found


def test_tensor_parallel_peers_are_one_replica(answers: list[Mapping[str, list[object] | str]]) -> None:
    assert [one["FSDP2"] for one in answers] == [
        ["FSDP2", replica, 2, True, False] for replica in (0, 0, 0, 0, 1, 1, 1, 1)
    ]


def test_copies_and_shards_are_counted_together(answers: list[Mapping[str, list[object] | str]]) -> None:
    assert [one["hybrid"] for one in answers] == [
        ["FSDP2", replica, 4, True, False] for replica in (0, 0, 1, 1, 2, 2, 3, 3)
    ]


def test_who_gathers_in_every_forward_is_told(answers: list[Mapping[str, list[object] | str]]) -> None:
    assert answers[0]["left to FSDP2"] == ["FSDP2", 0, 2, True, False]
    assert answers[0]["resharding"] == ["FSDP2", 0, 2, True, True]
    assert answers[0]["resharding layers"] == ["FSDP2", 0, 2, True, True]


def test_expert_parallelism_is_refused(answers: list[Mapping[str, list[object] | str]]) -> None:
    assert "expert parallelism" in answers[1]["experts"]


def test_what_is_wrapped_in_nothing_is_one_replica(answers: list[Mapping[str, list[object] | str]]) -> None:
    assert [one["bare"] for one in answers] == [["none", 0, 1, False, False]] * 8


def train(rank: int, name: str, listens: bool) -> tuple[list[list[str]], str, list[list[Kind]], object]:  # noqa: FBT001
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "pipeline"))
    pipeline = Pipeline(
        name,
        4,
        group=mesh["pipeline"].get_group(),
        wrap=lambda module: fully_shard(module, mesh=mesh["replica"], reshard_after_forward=False),
    )
    adapter, noting = PipeliningAdapter(check(pipeline.schedule)), Noting()
    if listens:
        adapter.install(noting)
    losses = [pipeline.train() for _ in range(3)]
    kinds = [iteration.kinds for iteration in noting.iterations]
    return losses, pipeline.weights(), kinds, (adapter.place(), adapter.sync_point)


@pytest.mark.parametrize("name", ["GPipe", "Interleaved", "ZBV", "DualPipeV"])
def test_beside_fsdp2_the_reductions_are_heard_in_their_places(name: str) -> None:
    plain = [said.value for said in run_ranks(4, train, name, False)]
    heard = [said.value for said in run_ranks(4, train, name, True)]
    for rank, (losses, weights, kinds, (place, sync_point)) in enumerate(heard):
        assert (losses, weights) == plain[rank][:2]
        assert kinds == [[i.kind for i in place.order if i.kind is not Kind.STEP]] * 3
        assert kinds[0].count(Kind.REDUCE_GRADS) == (1 if name == "GPipe" else 2)
        assert (place.replica, place.pipeline_rank) == divmod(rank, 2)
        assert place.left_out
        assert sync_point is (SyncPoint.REDUCTION if name == "GPipe" else SyncPoint.UNMARKED)
