"""A host is gone for good while clocks are held: every host's own guards put its clocks back."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hosts import Hosts, hosts
from jobs import names
from nodes import FakeNvml, beside, block, live, node_at, when
from ranks import config

pytestmark = pytest.mark.e2e

HELD, FREE = [1410, 1410, 0, 0], [0, 0, 0, 0]
GENEROUS_S = 30.0


def train(rank: int, content: Mapping[str, Any], disk: Path) -> object:
    (disk / f"pid.{rank}").write_text(str(os.getpid()))
    return live(rank, content, lambda _: False, 0)


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

    def send(self, host: int, blow: signal.Signals) -> None:
        for file in self.network.outside(host).glob("pid.*"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), blow)


def test_every_hosts_clocks_come_back_and_no_guard_is_left(tmp_path: Path) -> None:
    folders = [tmp_path / f"host{number}" for number in (0, 1)]
    for folder in folders:
        folder.mkdir()
    nodes = [node_at(folder) for folder in folders]
    with hosts(own_users=False) as network:
        for number, node in enumerate(nodes):
            mine = node.environment()
            network.own[number] = {name: mine[name] for name in mine if mine[name] != os.environ.get(name)}
        run_dir = network.disk / "run"
        perseus = block(run_dir, mode="profile", profile={"min_window_s": 1e4, "max_clocks": 2})
        lost = Lost(network, nodes)
        with (
            beside(when(lost.holds, lost.strike)),
            suppress(AssertionError),  # the harness reports ranks that died: that is the point
        ):
            network.run(train, config(gradient_clipping=1.0, perseus=perseus), network.disk)
    sys.stdout.write(f"default clocks {lost.after_s[1]:.3f} and {lost.after_s[0]:.3f} s after the ends\n")
    assert max(lost.after_s) < GENEROUS_S
    assert [node.locked_mhz() for node in nodes] == [FREE, FREE]
    assert lost.left == [{}, {}]
