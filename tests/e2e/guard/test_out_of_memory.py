"""The kernel's own out-of-memory kill takes the trainer and leaves the guard, in a cgroup of the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import TRAINER, alive, eventually

pytestmark = pytest.mark.e2e

ROOM = 192 << 20


class MemoryCgroup:
    """A group below our own, of either version, that may use so much memory and no swap."""

    def __init__(self, folder: Path, limit: str, kills: str) -> None:
        self.folder, self._kills = folder, folder / kills
        folder.mkdir()
        try:
            (folder / limit).write_text(str(ROOM))
            for swap in ("memory.swap.max", "memory.swappiness"):
                with contextlib.suppress(OSError):
                    (folder / swap).write_text("0")
        except OSError:
            folder.rmdir()
            raise

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self) -> int:
        counts = dict(line.split() for line in self._kills.read_text().splitlines())
        return int(counts["oom_kill"])

    def remove(self) -> None:
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for _ in range(1000):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.01)


def own_groups() -> Iterator[tuple[Path, str, str]]:
    """Folder of our memory's account: version 1's folder, or version 2's."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes", "memory.oom_control"
        elif not controllers:
            yield Path(f"/sys/fs/cgroup{path}"), "memory.max", "memory.events"


@pytest.fixture
def cgroup() -> Iterator[MemoryCgroup]:
    why_not = "no memory controller"
    for folder, limit, kills in own_groups():
        try:
            group = MemoryCgroup(folder / f"perseus_test_{os.getpid()}", limit, kills)
        except OSError as error:
            why_not = str(error)
            continue
        yield group
        group.remove()
        return
    pytest.skip(f"no memory cgroup can be made here: {why_not}")


def test_the_trainer_is_killed_and_the_guard_puts_the_clock_back(
    node: FakeNvml, cgroup: MemoryCgroup
) -> None:
    process = subprocess.Popen(
        [sys.executable, str(TRAINER), "0", "exhausts"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=cgroup.join,  # noqa: PLW1509 - this test starts no threads
    )
    guard = int(process.stdout.readline())
    assert process.wait(60) == -signal.SIGKILL
    ended_s = time.monotonic()
    process.stdout.close()
    assert eventually(lambda: not alive(guard))
    assert node.state.gpu[0].sets > 0
    assert node.locked_mhz() == [0, 0]
    assert cgroup.kills() == 1
    after_ms = 1e3 * (node.state.gpu[0].changed_us / 1e6 - ended_s)
    print(f"out of memory: the clock was free {after_ms:+.1f} ms from when the end was seen")  # noqa: T201
