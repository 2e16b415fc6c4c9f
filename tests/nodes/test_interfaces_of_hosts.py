"""Two hosts whose names do not resolve: our control traffic finds its way, and its connections stay few."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch.distributed as dist
from hosts import forget_interface, hosts

from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.reach import reach_of

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Met:
    """What one rank got from all, and why it listens where it does."""

    everyone: list[object]
    told: object
    greatest: list[float]
    why: str


def meet(rank: int, variable: str | None) -> Met:
    forget_interface(variable)
    reach = reach_of(os.environ["MASTER_ADDR"])
    channel = ControlChannel("meeting", reach, patience_s=30.0)
    everyone, told = channel.gather({"rank": rank}), channel.broadcast(["plan", rank])
    channel.post(np.array([0.0, float(rank)]))
    greatest = channel.collect()
    assert greatest is not None
    channel.close()
    dist.barrier()
    return Met(everyone, told, greatest.tolist(), reach.why)


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        (None, "10.9.0."),
        ("^lo", "GLOO_SOCKET_IFNAME=^lo"),
        ("ib0", "GLOO_SOCKET_IFNAME=ib0"),
        ("eth0", ""),
    ],
)
def test_ranks_of_two_hosts_meet(variable: str | None, why: str) -> None:
    with hosts() as network:
        said = network.run(meet, variable)
    for one in said:
        assert one.value.everyone == [{"rank": rank} for rank in range(4)]
        assert one.value.told == ["plan", 0]
        assert one.value.greatest == [0.0, 3.0]
        assert why in one.value.why
