"""The network of our control traffic is cut: training goes on, and all ranks meet again when it is back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hosts import forget_interface, hosts

from perseus_ds.errors import EngineError
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.comm.interfaces import reach_of

pytestmark = pytest.mark.e2e

AT, MOST, PATIENCE_S = 10, 4_000, 2.0
GAP_S = 20.0
"""Long enough that connecting fails with "no route to host", which takes some seconds."""


@dataclass(frozen=True)
class Course:
    """What happened on one rank: at which iterations it was lost and met the others, and what it waited."""

    lost: list[int]
    met: list[int]
    waited_s: float
    last: list[float]


def course(rank: int, flag: Path) -> Course:
    """Train (a reduction over the first network) and exchange a number (over the second) every iteration."""
    forget_interface("eth1")
    channel = ControlChannel("job", reach_of("10.9.1.1"), patience_s=60.0)
    lost, met, waited_s, reunion, index = list[int](), list[int](), 0.0, None, 0
    channel.gather(rank)
    while index < MOST and not (met and index >= met[-1] + 10 and reunion is None):
        gradient = torch.ones(1)
        dist.all_reduce(gradient)
        assert float(gradient) == 4.0
        time.sleep(0.02)
        index += 1
        if rank == 0 and index == AT:
            flag.touch()
        began_s = time.monotonic()
        if reunion is not None and not isinstance(group := reunion.at(index), bool):
            channel.renew(group)
            reunion = None
            met.append(index)
        if reunion is None:
            try:
                last = channel.collect(patience_s=PATIENCE_S)
                channel.post(np.array([0.0, float(rank + index)]))
            except EngineError:
                reunion = channel.reunion()
                lost.append(index)
        waited_s = max(waited_s, time.monotonic() - began_s)
    dist.barrier()
    channel.close()
    return Course(lost, met, waited_s, [] if last is None else last.tolist())


def test_all_meet_again_at_one_iteration_once_the_network_is_back() -> None:
    with hosts() as network:
        flag = network.disk / "cut"
        with network.cutting(1, GAP_S, when=network.outside() / "cut", net=1):
            said = network.run(course, flag)
    courses = [one.value for one in said]
    assert all(one.lost for one in courses)
    assert len({tuple(one.met) for one in courses}) == 1, "all at the same iterations"
    assert len({tuple(one.last) for one in courses}) == 1, "and they exchange numbers again"
