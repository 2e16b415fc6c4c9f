"""A launcher that is gone takes the clocks with it; a shell that goes leaves them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import EVERYTHING, TRAINER, Daemon, alive, eventually

from perseus_ds.guard.connection import launchers_above

pytestmark = pytest.mark.e2e

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "0"]


class Started:
    """A trainer that something else started, and that would train on without it."""

    def __init__(self, *command: str) -> None:
        self.above = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.guard = int(self.above.stdout.readline())
        stat = Path(f"/proc/{self.guard}/stat").read_text(encoding="ascii")
        own_guard = "guardd" not in command  # else the trainer names itself
        self.trainer = int(stat.rpartition(")")[2].split()[1]) if own_guard else self.guard

    def end(self) -> None:
        for pid in (self.trainer, self.above.pid):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.above.stdout.close()
        self.above.wait(30)


@pytest.fixture
def under_torchrun(node: FakeNvml, tmp_path: Path) -> Iterator[Started]:
    started = Started(*TORCHRUN, "--log-dir", str(tmp_path), str(TRAINER), "0", "runs")
    yield started
    started.end()


def test_the_launcher_is_found(under_torchrun: Started) -> None:
    [(descriptor, name)] = launchers_above(under_torchrun.trainer).items()
    os.close(descriptor)
    assert name == f"torch.distributed.run, process {under_torchrun.above.pid}"


def test_a_killed_launcher_takes_the_clocks_and_not_the_training(
    node: FakeNvml, under_torchrun: Started
) -> None:
    assert eventually(lambda: any(node.locked_mhz()))
    under_torchrun.above.kill()
    assert eventually(lambda: not alive(under_torchrun.guard))
    assert not any(node.locked_mhz())
    assert alive(under_torchrun.trainer)


def test_the_nodes_service_watches_the_launcher_too(
    node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    daemon = Daemon(tmp_path / "guardd.sock", EVERYTHING)
    started = Started(*TORCHRUN, "--log-dir", str(tmp_path), str(TRAINER), "0", "runs", "guardd")
    try:
        assert eventually(lambda: any(node.locked_mhz()))
        started.above.kill()
        assert eventually(lambda: not any(node.locked_mhz()))
        assert alive(started.trainer)
        assert eventually(lambda: takes(daemon))  # the lease is free again
    finally:
        started.end()
        daemon.end()


def takes(daemon: Daemon) -> bool:
    sock, answer = daemon.take()
    sock.close()
    return answer["is"] == "taken"


def test_a_shell_that_ends_leaves_its_job_alone(node: FakeNvml) -> None:
    words = " ".join([sys.executable, str(TRAINER), "0", "runs"])
    started = Started("sh", "-c", f"{words} & exec sleep 0.5")
    try:
        assert started.above.wait(30) == 0
        assert eventually(lambda: any(node.locked_mhz()))
        assert alive(started.guard)
    finally:
        started.end()
    assert eventually(lambda: not any(node.locked_mhz()))
