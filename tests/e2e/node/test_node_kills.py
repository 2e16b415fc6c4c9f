"""However a DeepSpeed job ends, no clock stays locked: real processes, signals, clocks seen from outside."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import FakeNvml, beside, block, clocks_reset, lived, node_at, when
from jobs import names
from ranks import config

pytestmark = pytest.mark.e2e

STAGES = 2
COMPUTES_S = 0.012  # jobs that train flat out only take each other's time
FREE = [0] * STAGES
GENEROUS_S = 30.0


@dataclass(frozen=True)
class Pair:
    """A rank and its guard, by their process numbers."""

    rank: int
    guard: int


def pairs() -> list[Pair]:
    """The guards whose parents are children of this process: a guard's last argument is its parent."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"perseus_ds.guard" in words and parent_of(int(words[-2])) == os.getpid():
                    found.append(Pair(int(words[-2]), int(folder.name)))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def send(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def eventually(true: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + GENEROUS_S
    while time.monotonic() < until_s:
        if true():
            return True
        time.sleep(0.001)
    return False


class Struck:
    """A job that holds clocks, what was done to it, and what the driver held when that was over."""

    def __init__(self, node: FakeNvml, run_dir: Path, blow: Callable[[list[Pair]], None]) -> None:
        self.node, self.run_dir, self.blow = node, run_dir, blow
        self.after_s: float | None = None
        run_dir.mkdir()
        perseus = block(
            run_dir, mode="profile", profile={"min_window_s": 1e4, "max_clocks": 2, "settle_s": 0.0}
        )
        content = config(gradient_clipping=1.0, perseus=perseus)
        with (
            beside(when(self.holds, self.strike)),
            suppress(AssertionError),  # the harness tells of ranks that died: that is the point
        ):
            lived(node, content, self.over, stages=STAGES, computes_s=COMPUTES_S)

    def holds(self) -> bool:
        """Calibration is over, and the highest clock is held for as long as the job lasts."""
        return self.node.locked_mhz() == [1410] * STAGES and "profiling" in names(self.run_dir)

    def strike(self) -> None:
        self.there = pairs()
        began_s = time.monotonic()
        self.blow(self.there)
        if eventually(lambda: self.node.locked_mhz() == FREE):
            self.after_s = time.monotonic() - began_s
        (self.run_dir / "over").touch()

    def over(self, run_dir: Path) -> bool:
        """Rank 0 asks this after every step: where a training script would raise, it raises."""
        if (run_dir / "raise").exists():
            raise RuntimeError("as a training script may")
        if (run_dir / "exhaust").exists():
            exhaust_memory()
        return (run_dir / "over").exists()


def exhaust_memory() -> None:
    """Ask for more than the process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 20, most))
    held = []
    while True:
        held.append(bytearray(16 << 20))


@pytest.fixture
def node(tmp_path: Path) -> FakeNvml:
    return node_at(tmp_path, STAGES)


def kill_a_rank(there: list[Pair]) -> None:
    """As the kernel does when memory runs out, too."""
    send(signal.SIGKILL, there[0].rank)


def ctrl_c(there: list[Pair]) -> None:
    send(signal.SIGINT, *(pair.rank for pair in there))


def time_out(there: list[Pair]) -> None:
    """As DeepSpeed's launcher ends ranks: SIGTERM, and SIGKILL for those that are still there."""
    send(signal.SIGTERM, *(pair.rank for pair in there))
    time.sleep(0.2)
    send(signal.SIGKILL, *(pair.rank for pair in there))


def kill_the_guards(there: list[Pair]) -> None:
    """The living ranks do their guards' last duty, and train on."""
    send(signal.SIGKILL, *(pair.guard for pair in there))


@pytest.mark.parametrize("blow", [kill_a_rank, ctrl_c, time_out, kill_the_guards])
def test_no_clock_is_left(node: FakeNvml, tmp_path: Path, blow: Callable[[list[Pair]], None]) -> None:
    struck = Struck(node, tmp_path / "run", blow)
    assert len(struck.there) == STAGES
    assert struck.after_s is not None
    assert node.locked_mhz() == FREE


@pytest.mark.parametrize("how", ["raise", "exhaust"])
def test_no_clock_is_left_when_the_script_fails(node: FakeNvml, tmp_path: Path, how: str) -> None:
    run_dir = tmp_path / "run"
    struck = Struck(node, run_dir, lambda _: (run_dir / how).touch())
    assert struck.after_s is not None
    assert node.locked_mhz() == FREE


def test_where_guards_and_ranks_were_killed_the_command_puts_back(node: FakeNvml, tmp_path: Path) -> None:
    def kill_all(there: list[Pair]) -> None:
        # Stopped first, so that no rank makes good what befell its guard.
        send(signal.SIGSTOP, *(pair.rank for pair in there))
        send(signal.SIGKILL, *(pair.guard for pair in there))
        send(signal.SIGKILL, *(pair.rank for pair in there))
        assert eventually(lambda: not any(alive(pair.guard) for pair in there))
        assert node.locked_mhz() == [1410] * STAGES
        announced = clocks_reset(node)
        assert announced.returncode == 0, announced.stdout + announced.stderr
        assert announced.stdout.count("put back") == STAGES

    assert Struck(node, tmp_path / "run", kill_all).after_s is not None
    assert node.locked_mhz() == FREE


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
    return False
