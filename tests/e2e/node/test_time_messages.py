"""Moments on their way between ranks in virtual time."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from ranks import run_ranks

from perseus_ds.runtime.channel import Reach
from perseus_ds.runtime.emulation_links import TimeMessages

pytestmark = pytest.mark.e2e


def one_sends_first(rank: int, sender: int) -> float:
    messages, store = TimeMessages("test", Reach()), dist.distributed_c10d._get_default_store()
    if rank == sender:
        messages.send(1 - sender, 0, 2.5)
        store.set("sent", "yes")
        dist.barrier()
        return 2.5
    store.wait(["sent"])  # as a rank does that waits for the sender's data first
    moment_s = messages.receive(sender, 0)
    dist.barrier()
    return moment_s


@pytest.mark.parametrize("sender", [0, 1])
def test_a_moment_is_sent_while_its_receiver_waits_for_something_else(sender: int) -> None:
    assert [said.value for said in run_ranks(2, one_sends_first, sender)] == [2.5, 2.5]
