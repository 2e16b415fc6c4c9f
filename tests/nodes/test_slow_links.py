"""A control network with 50 ms of delay in each direction, and one that loses frames: a job is served."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import pytest
from hosts import OurTime, forget_interface, hosts
from jobs import STAGES, UNEVEN, block, lines, names, plain_losses
from ranks import batches, build, config

from perseus_ds.runtime.attach import session_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STEPS = 40
SCALED = {"time": "scaled", "time_scale": 0.05}
"""Our exchange is all that crosses this network in scaled time."""


def there_and_back_s(rank: int) -> float:
    """How long a message to the other host and its answer take."""
    address = ("10.9.1.1", 5999)
    if rank == 0:
        with socket.create_server(address) as server:
            peer, _ = server.accept()
            with peer:
                peer.sendall(peer.recv(1))
        return 0.0
    if rank != STAGES - 1:
        return 0.0
    for _ in range(100):
        try:
            peer = socket.create_connection(address, timeout=20.0)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    with peer:
        began_s = time.monotonic()
        peer.sendall(b"x")
        peer.recv(1)
        return time.monotonic() - began_s


def ride(rank: int, content: dict[str, Any]) -> tuple[list[str], float, float]:
    """Train, and return the losses, the way of a message, and the longest wait in calls of ours."""
    way_s = there_and_back_s(rank)
    engine = build(content, stages=STAGES, inner=UNEVEN)
    forget_interface("eth1")
    data, losses, ours, longest_s = batches(), list[str](), OurTime(), 0.0
    for _ in range(STEPS):
        losses.append(float(engine.train_batch(data)).hex())
        longest_s = max(longest_s, ours.take())
        if (session := session_of(engine)) is not None:
            ours.put_around(session)
    return losses, way_s, longest_s


@pytest.mark.parametrize(("delay_s", "loss"), [(0.05, 0.0), (0.005, 0.01), (0.05, 0.01)])
def test_a_job_profiles_over_a_slow_link(delay_s: float, loss: float) -> None:
    with hosts() as network, network.slow(1, delay_s=delay_s, loss=loss, net=1):
        run_dir = network.disk / "run"
        said = network.run(ride, config(perseus=block(run_dir, simulated=SCALED)))
        seen = names(network.outside() / "run")
    waits_s = [round(one.value[2], 2) for one in said]
    sys.stdout.write(f"a message's way {said[-1].value[1]:.3f} s, longest waits in ours {waits_s}: {seen}\n")
    assert said[-1].value[1] >= 2 * delay_s
    assert [one.value[0] for one in said] == plain_losses(STEPS)
    assert "profiling" in seen, lines(said[0])
    assert "disabled" not in seen
    if not loss:  # a frame that is lost twice looks like a broken link
        assert "alone" not in seen
