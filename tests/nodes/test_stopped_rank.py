"""A rank is stopped for a minute while clocks are held, and goes on: nothing stays switched off."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeNvml, beside, block, live, node_at, when
from jobs import STAGES, events, names
from ranks import config, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HELD = [1410] * STAGES
VICTIM, STOPPED_S, GENEROUS_S = 2, 60.0, 60.0


def train(rank: int, content: Mapping[str, Any], run_dir: Path) -> object:
    (run_dir / f"pid.{rank}").write_text(str(os.getpid()))
    return live(rank, content, lambda folder: (folder / "over").exists(), 3)


def eventually(true: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + GENEROUS_S
    while not (found := true()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return found


class Stop:
    """What the driver held while a rank was stopped, and after it went on."""

    def __init__(self, node: FakeNvml, run_dir: Path) -> None:
        self.node, self.run_dir = node, run_dir
        self.while_stopped: list[int] = []
        self.held_again = False

    def holds(self) -> bool:
        return self.node.locked_mhz() == HELD and "profiling" in names(self.run_dir)

    def strike(self) -> None:
        pid = int((self.run_dir / f"pid.{VICTIM}").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        self.while_stopped = self.node.locked_mhz()
        os.kill(pid, signal.SIGCONT)
        self.held_again = eventually(lambda: self.node.locked_mhz() == HELD)
        (self.run_dir / "over").touch()


def test_clocks_are_held_again_when_a_stopped_rank_goes_on(tmp_path: Path) -> None:
    node, run_dir = node_at(tmp_path), tmp_path / "run"
    run_dir.mkdir()
    perseus = block(run_dir, mode="profile", profile={"min_window_s": 1e4, "max_clocks": 2, "settle_s": 0.0})
    stop = Stop(node, run_dir)
    with beside(when(stop.holds, stop.strike)):
        run_ranks(
            STAGES,
            train,
            config(gradient_clipping=1.0, perseus=perseus),
            run_dir,
            environment=node.environment(),
        )
    seen = [event["event"] for event in events(run_dir)]
    sys.stdout.write(f"while stopped {stop.while_stopped}: {seen}\n")
    assert stop.held_again
    assert "disabled" not in seen
    assert node.locked_mhz() == [0] * STAGES
