"""However a job ends, no clock stays locked: real processes, real signals, the clocks seen from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from fake_nvml import UUID, FakeNvml
from processes import TRAINER, Job, Start, alive, control_group, eventually, free, locking_job

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard.connection import launchers_above
from perseus_ds.guard.protocol import RESTORED
from perseus_ds.guard.repair import Outcome, repair
from perseus_ds.guard.spawn import spawn

pytestmark = pytest.mark.e2e

ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_a_job_that_ends_by_itself(node: FakeNvml, how: str) -> None:
    job = Job(how)
    job.wait()
    assert eventually(lambda: not alive(job.guard) and free(node))


BLOWS = {
    **{number.name: ("runs", partial(Job.kill_trainer, number=number)) for number in ENDING},
    "its forked worker lives on": ("forks", Job.kill_trainer),
    "Ctrl-C reaches the job and not the guard": ("runs", Job.ctrl_c),
}


@pytest.mark.parametrize(("how", "blow"), BLOWS.values(), ids=BLOWS)
def test_a_trainer_that_is_killed(node: FakeNvml, how: str, blow: Callable[[Job], None]) -> None:
    job = locking_job(node, how)
    blow(job)
    assert eventually(lambda: free(node) and not alive(job.guard))
    job.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_asked_to_end_puts_the_clock_back(node: FakeNvml, number: signal.Signals) -> None:
    job = locking_job(node)
    job.kill_guard(number)
    assert eventually(lambda: not alive(job.guard))
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()
    assert free(node)


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """192 MiB and no swap."""
    with control_group("memory", limit_in_bytes=192 << 20, max=192 << 20, swap__max=0, swappiness=0) as group:
        yield group


def test_a_trainer_that_exhausts_its_memory_is_killed_alone(node: FakeNvml, little_memory: Path) -> None:
    joins = ["sh", "-c", f'echo $$ > {little_memory}/cgroup.procs && exec "$@"', "sh"]
    words = [*joins, sys.executable, str(TRAINER), "0", "exhausts"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        guard = int(process.stdout.readline())
        assert process.wait(60) == -signal.SIGKILL
    assert eventually(lambda: not alive(guard))
    assert node.state.gpu[0].sets > 0
    assert node.locked_mhz() == [0, 0]
    counts = (little_memory / name for name in ("memory.oom_control", "memory.events"))
    assert "oom_kill 1\n" in next(file for file in counts if file.exists()).read_text()


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_that_does_not_end_a_guard_by_itself_is_heard(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its parent lives and says nothing; a guard that heard nothing waits longer than we do."""
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))
    sock, process = spawn()
    with sock, process:
        try:
            assert eventually(lambda: catches(process.pid, number), 60.0)
            process.send_signal(number)
            assert process.wait(timeout=20.0) == RESTORED
        finally:
            process.kill()


def test_the_lock_that_an_operator_states_comes_back(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATED_MHZ", "900")
    with NvmlGpu(DeviceRequest("nvml")) as operator:
        operator.lock_clock(900)
    for kill in (Job.kill_trainer, Job.kill_both):
        job = Job()
        assert eventually(lambda: node.locked_mhz() != [900, 0])
        kill(job)
        job.wait()
        assert eventually(lambda job=job: not alive(job.guard))
        repaired = [(fixed.uuid, fixed.outcome) for fixed in repair()]
        assert repaired == [(UUID.format(0), Outcome.RESTORED)] * (kill is Job.kill_both)
        assert node.locked_mhz() == [900, 0]


# A launcher that is gone takes the clocks with it; a shell that goes leaves them.

TRAINS = [str(TRAINER), "0", "runs"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "0"]
TORCHRUN += ["--log-dir", "logs"]
DEEPSPEED = [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", "1", "--no_local_rank"]
DEEPSPEED += ["--log_level", "error"]


class Started(Job):
    """A trainer that something else started, and that would train on without it."""

    def __init__(self, *command: str) -> None:
        super().__init__(command=command)
        stat = Path(f"/proc/{self.guard}/stat").read_text(encoding="ascii")
        own_guard = "guardd" not in command  # else the trainer names itself
        self.trainer = int(stat.rpartition(")")[2].split()[1]) if own_guard else self.guard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self.trainer, self.process.pid):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.stdout.close()
        self.process.wait(30)


@pytest.mark.parametrize(
    ("words", "whom"),
    [(TORCHRUN, "torch.distributed.run"), (DEEPSPEED, "deepspeed.launcher.launch"), (DEEPSPEED, "deepspeed")],
)
def test_a_killed_launcher_takes_the_clocks_and_not_the_training(
    node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], whom: str
) -> None:
    """DeepSpeed's command starts a launcher on the node; neither ends with the other."""
    monkeypatch.chdir(tmp_path)  # torchrun leaves its logs there
    with Started(*words, *TRAINS) as started:
        found = launchers_above(started.trainer)
        for descriptor in found:
            os.close(descriptor)
        pids = dict(text.split(", process ") for text in found.values())
        assert eventually(lambda: any(node.locked_mhz()))
        os.kill(int(pids[whom]), signal.SIGKILL)
        assert eventually(lambda: not alive(started.guard))
        assert not any(node.locked_mhz())
        assert alive(started.trainer)


def test_the_nodes_service_watches_the_launcher_too(
    node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon = start()
    with Started(*TORCHRUN, *TRAINS, "guardd") as started:
        assert eventually(lambda: any(node.locked_mhz()))
        started.process.kill()
        assert eventually(lambda: not any(node.locked_mhz()))
        assert alive(started.trainer)
        assert eventually(daemon.gives)  # the lease is free again


def test_a_shell_that_ends_leaves_its_job_alone(node: FakeNvml) -> None:
    with Started("sh", "-c", f"{' '.join([sys.executable, *TRAINS])} & exec sleep 0.5") as started:
        assert started.process.wait(30) == 0
        assert eventually(lambda: any(node.locked_mhz()))
        assert alive(started.guard)
    assert eventually(lambda: not any(node.locked_mhz()))
