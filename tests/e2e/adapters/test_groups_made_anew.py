"""Process groups that a framework destroys and makes again in the same processes: real gloo, real stores."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch.distributed as dist
from ranks import run_ranks

from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.rendezvous import rendezvous

pytestmark = pytest.mark.e2e

RANKS = 3
LIVES = 3


def _live(rank: int, folder: Path) -> list[tuple[str, list[object]]]:
    """In every life another rank has waited for an engine of its own, and one comes for the first time."""
    seen: list[tuple[str, list[object]]] = []
    channels: list[ControlChannel] = []  # as long as all others may still be in them
    for life in range(LIVES):
        dist.destroy_process_group()
        store = f"file://{folder}/life{life}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
        if rank == life:
            assert rendezvous({}, patience_s=0.05).refusal is not None
        dist.barrier()
        for meeting in range(2):
            met = rendezvous({"life": f"{life} {meeting} of {rank}"}, patience_s=60.0)
            assert met.refusal is None, met.refusal
            channels.append(ControlChannel(met.name, met.reach, patience_s=60.0))
            seen.append((str(met.settings["life"]), channels[-1].gather(rank)))
        (folder / f"through{life}.{rank}").touch()
        while len(list(folder.glob(f"through{life}.*"))) < RANKS:
            time.sleep(0.005)  # who destroys a group earlier takes its connections from the others
    return seen


def test_ranks_that_have_come_more_often_than_others_meet_them(tmp_path: Path) -> None:
    expected = [
        (f"{life} {meeting} of 0", list(range(RANKS))) for life in range(LIVES) for meeting in range(2)
    ]
    assert [one.value for one in run_ranks(RANKS, _live, tmp_path)] == [expected] * RANKS
