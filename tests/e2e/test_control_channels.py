"""Our exchange between ranks, without a framework: real processes, real gloo, real stores."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from ranks import run_ranks

from perseus_ds.runtime.channel import ControlChannel, Reach
from perseus_ds.runtime.emulation import TimeMessages
from perseus_ds.runtime.rendezvous import rendezvous

pytestmark = pytest.mark.e2e

RANKS = 3
LIVES = 3


def live(rank: int, folder: Path) -> list[tuple[str, list[object]]]:
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
    """A framework destroys its process groups and makes them again in the same processes."""
    expected = [(f"{life} {n} of 0", list(range(RANKS))) for life in range(LIVES) for n in range(2)]
    assert [one.value for one in run_ranks(RANKS, live, tmp_path)] == [expected] * RANKS


def one_sends_first(rank: int, sender: int) -> float:
    messages, store = TimeMessages("test", Reach()), dist.distributed_c10d._get_default_store()
    moment_s = 2.5
    if rank == sender:
        messages.send(1 - sender, 0, moment_s)
        store.set("sent", "yes")
    else:
        store.wait(["sent"])  # as a rank does that waits for the sender's data first
        moment_s = messages.receive(sender, 0)
    dist.barrier()
    return moment_s


@pytest.mark.parametrize("sender", [0, 1])
def test_a_moment_is_sent_while_its_receiver_waits_for_something_else(sender: int) -> None:
    assert [said.value for said in run_ranks(2, one_sends_first, sender)] == [2.5, 2.5]


ALONE = """
import os, signal, sys
import numpy as np
import torch.distributed as dist
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.errors import EngineError
rank, folder, fate = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=3)
channel = ControlChannel()
channel.settle()
vector = np.zeros(5)
vector[1] = rank
channel.post(vector)
assert channel.collect()[:2].tolist() == [0.0, 2.0]
if rank == 2 and fate == "freezes in a gather":
    channel.post(vector)
    channel.collect()
if rank == 2 and fate != "lives":
    os.kill(os.getpid(), signal.SIGKILL if fate == "is killed" else signal.SIGSTOP)
vector[1] += 10.0
channel.post(vector)
try:
    if "gather" in fate:
        channel.gather(rank)
    print("observed", channel.collect(patience_s=60.0 if fate == "lives" else 2.0)[:2].tolist(), flush=True)
except EngineError as error:
    print(error, flush=True)
if fate == "lives":
    channel.post(vector)
channel.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "fate", ["lives", "freezes", "is killed", "freezes before a gather", "freezes in a gather"]
)
def test_the_process_ends_soon_and_well_whatever_becomes_of_another(tmp_path: Path, fate: str) -> None:
    words, pipe = [sys.executable, "-c", ALONE], subprocess.PIPE
    ranks = [
        subprocess.Popen([*words, str(rank), str(tmp_path), fate], stdout=pipe, stderr=pipe, text=True)
        for rank in range(3)
    ]
    try:
        for process in ranks[:2]:
            output, error = process.communicate(timeout=200.0)
            assert ("observed [0.0," if fate == "lives" else "silent") in output
            assert "terminate called" not in error
            assert process.returncode == 0, error
    finally:
        ranks[2].kill()
        ranks[2].communicate()
