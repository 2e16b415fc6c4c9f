"""Ranks that lost each other and met again: real gloo, real stores."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ranks import run_ranks

from perseus_ds.runtime.comm.control_channel import ControlChannel

pytestmark = pytest.mark.e2e

RANKS = 2
LONG_S = 12.0  # more than ranks wait for one number when they meet


def _work_of_rank_0() -> str:
    time.sleep(LONG_S)
    return "done"


def _meet_again(rank: int, folder: Path) -> str:
    channel = ControlChannel()
    channel.gather(rank)
    reunion, index = channel.reunion(), 0
    while isinstance(group := reunion.at(index), bool):
        assert group is False
        index += 1
        time.sleep(0.05)
    channel.renew(group)
    answer = channel.broadcast_result(_work_of_rank_0)
    (folder / str(rank)).touch()
    while len(list(folder.iterdir())) < RANKS:
        time.sleep(0.005)  # who goes earlier takes its connections from the other
    return answer


def test_who_met_again_waits_for_what_rank_0_does(tmp_path: Path) -> None:
    """As long as in a group that never broke: a job that lost a rank once did not lose it at every try."""
    assert [one.value for one in run_ranks(RANKS, _meet_again, tmp_path)] == ["done"] * RANKS
