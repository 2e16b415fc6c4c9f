"""Jobs on two hosts without a shared disk, whose names do not resolve; and hosts that differ."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from hosts import block as nvml_block
from hosts import fake_nvml, forget_interface, hosts, node_at
from jobs import STAGES, Trained, block, events, happened, lines, plain_losses, train, train_until
from ranks import Said, config, free_port, run_ranks

import perseus_ds
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.reach import reach_of

pytestmark = pytest.mark.e2e

STEPS = 3


def until_measured(rank: int, content: dict[str, Any]) -> list[str]:
    measured = happened("measured")
    return train_until(rank, content, STAGES, measured, built=lambda _: forget_interface()).losses


def test_a_job_is_profiled_planned_run_and_measured() -> None:
    with hosts(days_apart=10.0) as network:
        said = network.run(until_measured, config(perseus=block(network.disk / "run")))
        left = [{path.name for path in (network.outside(host) / "run").glob("*.json")} for host in (0, 1)]
        summary = json.loads((network.outside() / "run" / "summary.json").read_text())
    assert [one.value for one in said] == plain_losses(len(said[0].value))
    assert {"profile.json", "plan.json", "summary.json"} <= left[0]
    assert summary["measured"]
    assert left[1] == set(), "a host without rank 0 needs no folder"
    assert any("10.9.0.1" in line for line in lines(said[0]))


def meet(rank: int, variable: str | None) -> tuple[list[object], list[object], object, list[float], str]:
    forget_interface(variable)
    reach = reach_of(os.environ["MASTER_ADDR"])
    channel = ControlChannel("meeting", reach, patience_s=30.0)
    everyone, first = channel.gather(rank), channel.gather(rank, to_first=True)
    told = channel.broadcast(["plan", rank])
    channel.post(np.array([0.0, float(rank)]))
    greatest = channel.collect()
    channel.close()
    dist.barrier()
    return everyone, first, told, greatest.tolist(), reach.why


@pytest.mark.parametrize(
    ("variable", "why"),
    [(None, "10.9.0."), ("^lo", "GLOO_SOCKET_IFNAME=^lo"), ("ib0", "GLOO_SOCKET_IFNAME=ib0"), ("eth0", "")],
)
def test_ranks_of_two_hosts_meet(variable: str | None, why: str) -> None:
    with hosts() as network:
        said = network.run(meet, variable)
    for one in said:
        everyone, first, told, greatest, reason = one.value
        assert (everyone, told, greatest) == ([0, 1, 2, 3], ["plan", 0], [0.0, 3.0])
        assert first == (everyone if one.rank == 0 else []), "only rank 0 receives reports"
        assert why in reason


def ran(rank: int, content: dict[str, Any]) -> Trained:
    return train(rank, content, STAGES, STEPS, built=lambda _: forget_interface())


def as_without_us(said: list[Said], *, served: bool) -> None:
    assert [one.value.losses for one in said] == plain_losses(STEPS)
    assert [one.value.attached for one in said] == [served] * STAGES


@pytest.mark.slow
def test_a_firewall_that_lets_the_masters_port_through_is_named() -> None:
    with hosts() as network:
        network.environment["GLOO_SOCKET_IFNAME"] = "eth1"  # training has a network of its own
        network.firewall()
        said = network.run(ran, config(perseus=block(network.disk / "run")))
    as_without_us(said, served=False)
    (line,) = lines(said[0])
    assert "get through" in line
    assert "firewall" in line


def of_another_release(rank: int, content: dict[str, Any]) -> Trained:
    if rank >= 2:
        perseus_ds.__version__ = "0.0.1"
    return ran(rank, content)


def test_another_release_on_one_host_is_named() -> None:
    with hosts() as network:
        said = network.run(of_another_release, config(perseus=block(network.disk / "run")))
    as_without_us(said, served=False)
    (line,) = lines(said[0])
    assert "0.0.1 on" in line
    assert "host1" in line
    assert f"{perseus_ds.__version__} on rank" in line


def on_other_disks(rank: int, content: dict[str, Any], disks: list[Path]) -> Trained:
    mine = content["perseus"] | {"run_dir": str(disks[rank // 2])}
    return ran(rank, content | {"perseus": mine})


@pytest.mark.slow
def test_another_run_dir_and_gpu_on_one_host_change_nothing_for_the_training() -> None:
    simulated = {"ranks": {str(rank): {"gpu": "h100-sxm"} for rank in (2, 3)}}
    with hosts() as network:
        folders = [network.disk / "run", network.disk / "of the other host"]
        content = config(perseus=block(folders[0], simulated=simulated))
        said = network.run(on_other_disks, content, folders)
        left = {path.name for host in (0, 1) for path in network.outside(host).iterdir()}
        (attached,) = events(network.outside() / "run", "attached")
    as_without_us(said, served=True)
    assert "of the other host" not in left, "rank 0's block holds for all"
    assert "h100" in str(attached["fingerprint"]["gpu"]).lower(), "a plan is for these GPUs alone"


def on_nvml(rank: int, content: dict[str, Any]) -> Trained:
    fake_nvml.load()
    return train(rank, content, STAGES, STEPS)


def test_two_ranks_on_one_gpu_are_named(tmp_path: Path) -> None:
    node, port = node_at(tmp_path), free_port()

    def enter(rank: int) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK=str(rank // 2))

    content = config(gradient_clipping=1.0, perseus=nvml_block(tmp_path / "run"))
    said = run_ranks(STAGES, on_nvml, content, environment=node.environment(), enter=enter)
    as_without_us(said, served=False)
    (line,) = lines(said[0])
    assert "off, training" in line
    assert "held by" in line
    assert node.locked_mhz() == [0] * STAGES
