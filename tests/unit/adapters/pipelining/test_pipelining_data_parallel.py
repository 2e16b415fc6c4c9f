"""Which replica a rank is, read off real FSDP2 modules; the ranks of the job are torch's fake ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import torch.distributed as dist
from torch import nn

from perseus_ds.adapters.torch_pipelining import DataParallel, Stage, data_parallel_of


@contextmanager
def job(rank: int, ranks: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # it makes the backend known

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def found(shape: tuple[int, ...], names: tuple[str, ...]) -> DataParallel:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module = nn.Linear(8, 8)
    fully_shard(module, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    return data_parallel_of([cast("Stage", SimpleNamespace(submod=module))])


@pytest.mark.parametrize("rank", range(4))
def test_each_rank_of_a_sharded_stage_is_a_replica_of_its_own(rank: int) -> None:
    with job(rank, 4):
        one = found((4,), ("shard",))
    assert (one.replica, one.replicas, one.reduces) == (rank, 4, True)


@pytest.mark.parametrize("rank", range(6))
def test_where_stages_are_replicated_and_sharded_no_two_ranks_are_one_replica(rank: int) -> None:
    """Two groups of three shards: the gradients of all six are reduced together."""
    with job(rank, 6):
        one = found((2, 3), ("replicate", "shard"))
    assert (one.replica, one.replicas) == (rank, 6)
