"""A host is gone for good while clocks are held: every host's own guards put its clocks back."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeNvml, Hosts, beside, block, hosts, live, node_at, when
from jobs import names
from ranks import config

pytestmark = pytest.mark.e2e

HELD, FREE = [1410, 1410, 0, 0], [0, 0, 0, 0]
GENEROUS_S = 30.0


def train(rank: int, content: Mapping[str, Any], disk: Path) -> object:
    (disk / f"pid.{rank}").write_text(str(os.getpid()))
    return live(rank, content, lambda _: (disk / "over").exists(), 0)


@contextmanager
def two_hosts(folder: Path) -> Iterator[Lost]:
    """Two hosts whose ranks have GPUs of fake drivers."""
    folders = [folder / f"host{number}" for number in (0, 1)]
    for one in folders:
        one.mkdir()
    nodes = [node_at(one) for one in folders]
    with hosts(own_users=False) as network:
        for number, node in enumerate(nodes):
            mine = node.environment()
            network.own[number] = {name: mine[name] for name in mine if mine[name] != os.environ.get(name)}
        yield Lost(network, nodes)


def journals(folder: Path) -> list[str]:
    """What guards have written down of a host's GPUs."""
    return sorted(file.name for file in (folder / "guard").glob("*.json"))


def eventually(true: Callable[[], bool]) -> float:
    """Wait until something is so; return how long that took, infinity where it is not."""
    began_s = time.monotonic()
    while (lasted_s := time.monotonic() - began_s) < GENEROUS_S:
        if true():
            return lasted_s
        time.sleep(0.001)
    return float("inf")


class Lost:
    """A job over two hosts, one of which loses its cable and its ranks for good; what each was like then."""

    def __init__(self, network: Hosts, nodes: list[FakeNvml]) -> None:
        self.network, self.nodes = network, nodes
        self.after_s = [float("inf")] * 2
        self.left: list[dict[int, list[str]]] = []

    def holds(self) -> bool:
        held = [node.locked_mhz() == HELD for node in self.nodes]
        return all(held) and "profiling" in names(self.network.outside() / "run")

    def strike(self) -> None:
        """The cable first, so that nobody learns of the end; later the launcher ends the others."""
        self.network.link(1, up=False)
        for host, blows in ((1, (signal.SIGKILL,)), (0, (signal.SIGTERM, signal.SIGKILL))):
            for blow in blows:
                self.send(host, blow)
                time.sleep(0.2 * (blow is signal.SIGTERM))
            self.after_s[host] = eventually(lambda: self.nodes[host].locked_mhz() == FREE)  # noqa: B023
        eventually(lambda: not any(node.processes() for node in self.nodes))
        self.left = [node.processes() for node in self.nodes]

    def lives(self, act: Callable[[], None]) -> None:
        """Train, do something once clocks are held, and go on until ranks end or a file is there."""
        network = self.network
        run_dir = network.disk / "run"
        at_once = {"min_window_s": 1e4, "max_clocks": 2, "settle_s": 0.0}
        perseus = block(run_dir, mode="profile", profile=at_once)
        with (
            beside(when(self.holds, act)),
            suppress(AssertionError),  # the harness reports ranks that died: that is the point
        ):
            network.run(train, config(gradient_clipping=1.0, perseus=perseus), network.disk)

    def send(self, host: int, blow: signal.Signals) -> None:
        for file in self.network.outside(host).glob("pid.*"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), blow)


@pytest.mark.slow
def test_a_host_that_reboots_serves_the_next_job(tmp_path: Path) -> None:
    """Its guards die with their trainers: their journals are of an earlier boot, its clocks default."""
    with two_hosts(tmp_path) as lost:
        network, nodes = lost.network, lost.nodes

        def crash() -> None:
            for pid in nodes[1].processes():
                os.kill(pid, signal.SIGKILL)
            lost.send(1, signal.SIGKILL)
            eventually(lambda: not nodes[1].processes())
            nodes[1].state.gpu[0].locked_mhz = nodes[1].state.gpu[1].locked_mhz = 0  # a GPU's own at boot
            lost.send(0, signal.SIGKILL)
            lost.after_s[0] = eventually(lambda: nodes[0].locked_mhz() == FREE)

        lost.lives(crash)
        stale = journals(tmp_path / "host1")
        network.reboot(1)
        (network.outside() / "run" / "events.jsonl").unlink()
        lost.lives((network.outside() / "over").touch)
        held = (network.outside() / "over").exists()
        eventually(lambda: not any(node.processes() for node in nodes))
        left = [node.processes() for node in nodes]
    sys.stdout.write(f"default clocks of the other host {lost.after_s[0]:.3f} s after its trainers' end\n")
    assert stale
    assert lost.after_s[0] < GENEROUS_S
    assert held
    assert [node.locked_mhz() for node in nodes] == [FREE, FREE]
    assert left == [{}, {}]
    assert [journals(tmp_path / f"host{number}") for number in (0, 1)] == [[], []]


def test_every_hosts_clocks_come_back_and_no_guard_is_left(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as lost:
        nodes = lost.nodes
        lost.lives(lost.strike)
    sys.stdout.write(f"default clocks {lost.after_s[1]:.3f} and {lost.after_s[0]:.3f} s after the ends\n")
    assert max(lost.after_s) < GENEROUS_S
    assert [node.locked_mhz() for node in nodes] == [FREE, FREE]
    assert lost.left == [{}, {}]
