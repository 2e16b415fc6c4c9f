"""Hosts differ, or block each other's connections: the job logs why, and trains on."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import forget_interface, hosts
from jobs import STAGES, UNEVEN, block, events, lines, plain_losses
from ranks import batches, build, config

import perseus_ds

pytestmark = pytest.mark.e2e

STEPS = 3
SAID_WITHIN_S = 120.0


@dataclass(frozen=True)
class Ran:
    """One rank's losses, whether we served it at the end, and how long its first iteration took."""

    losses: list[str]
    served: bool
    first_s: float


def ran(rank: int, content: dict[str, Any]) -> Ran:
    del rank
    engine, data = build(content, stages=STAGES, inner=UNEVEN), batches()
    forget_interface()
    began_s = time.monotonic()
    losses = [float(engine.train_batch(data)).hex()]
    first_s = time.monotonic() - began_s
    losses += [float(engine.train_batch(data)).hex() for _ in range(STEPS - 1)]
    return Ran(losses, "_exec_schedule" in vars(engine), first_s)


@pytest.mark.slow
def test_a_firewall_that_lets_the_masters_port_through_is_named() -> None:
    with hosts() as network:
        network.environment["GLOO_SOCKET_IFNAME"] = "eth1"  # training has a network of its own
        network.firewall()
        said = network.run(ran, config(perseus=block(network.disk / "run")))
    longest_s = max(one.value.first_s for one in said)
    sys.stdout.write(f"said after {longest_s:.1f} s\n")
    assert longest_s < SAID_WITHIN_S
    assert [one.value.losses for one in said] == plain_losses(STEPS)
    assert not any(one.value.served for one in said)
    (line,) = lines(said[0])
    assert "get through" in line
    assert "firewall" in line


def of_another_release(rank: int, content: dict[str, Any]) -> Ran:
    if rank >= 2:
        perseus_ds.__version__ = "0.0.1"
    return ran(rank, content)


def test_another_release_on_one_host_is_named() -> None:
    with hosts() as network:
        said = network.run(of_another_release, config(perseus=block(network.disk / "run")))
    assert [one.value.losses for one in said] == plain_losses(STEPS)
    assert not any(one.value.served for one in said)
    (line,) = lines(said[0])
    assert "0.0.1 on" in line
    assert "host1" in line
    assert f"{perseus_ds.__version__} on rank" in line


def on_other_disks(rank: int, content: dict[str, Any], disks: list[Path]) -> Ran:
    mine = content["perseus"] | {"run_dir": str(disks[rank // 2])}
    return ran(rank, content | {"perseus": mine})


@pytest.mark.slow
def test_another_run_dir_on_one_host_changes_nothing() -> None:
    with hosts() as network:
        folders = [network.disk / "run", network.disk / "of the other host"]
        said = network.run(on_other_disks, config(perseus=block(network.disk / "run")), folders)
        left = [sorted(path.name for path in network.outside(host).iterdir()) for host in (0, 1)]
        assert (network.outside() / "run" / "events.jsonl").exists()
    assert [one.value.losses for one in said] == plain_losses(STEPS)
    assert all(one.value.served for one in said)
    assert "of the other host" not in left[0] + left[1], "rank 0's block holds for all"


@pytest.mark.slow
def test_another_gpu_on_one_host_changes_nothing_for_the_training() -> None:
    simulated = {"ranks": {str(rank): {"gpu": "h100-sxm"} for rank in (2, 3)}}
    with hosts() as network:
        perseus = block(network.disk / "run", simulated=simulated)
        said = network.run(ran, config(perseus=perseus))
        (attached,) = [one for one in events(network.outside() / "run") if one["event"] == "attached"]
    assert [one.value.losses for one in said] == plain_losses(STEPS)
    assert all(one.value.served for one in said)
    assert "h100" in str(attached["fingerprint"]["gpu"]).lower(), "a plan is for these GPUs alone"
