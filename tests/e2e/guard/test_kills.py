"""However a job ends, no clock stays locked: real processes, real signals, the clocks seen from outside."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard.repair import Outcome, repair

pytestmark = pytest.mark.e2e

TRAINER = Path(__file__).with_name("trainer.py")


class Job:
    """A running trainer and its guard."""

    def __init__(self, how: str = "runs", seed: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TRAINER), str(seed), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.guard = int(self.process.stdout.readline())

    def kill_trainer(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)

    def kill_guard(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.guard, number)

    def kill_both(self) -> None:
        """Stop the trainer first: on a busy host it would put the clock back when it sees its guard gone."""
        self.kill_trainer(signal.SIGSTOP)
        self.kill_guard()
        self.kill_trainer()

    def ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> None:
        """Wait until the trainer has ended, and end its forked workers: they would outlive the test."""
        self.process.stdout.close()
        self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def eventually(true: Callable[[], bool], limit_s: float = 20.0) -> bool:
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        if true():
            return True
        time.sleep(0.002)
    return False


def alive(pid: int) -> bool:
    """Return whether a process has threads left: its first may end before those that hold its locks."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        return state not in {"Z", "X"} or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except OSError:
        return False


def free(node: FakeNvml) -> bool:
    return node.locked_mhz() == [0, 0]


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_a_job_that_ends_by_itself(node: FakeNvml, how: str) -> None:
    job = Job(how)
    job.wait()
    assert eventually(lambda: not alive(job.guard) and free(node))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_trainer_that_is_killed(node: FakeNvml, number: signal.Signals) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_trainer(number)
    job.wait()
    assert eventually(lambda: free(node) and not alive(job.guard))


def test_a_killed_trainer_whose_forked_worker_lives_on(node: FakeNvml) -> None:
    job = Job("forks")
    assert eventually(lambda: not free(node))
    job.kill_trainer()
    assert eventually(lambda: free(node) and not alive(job.guard))
    os.killpg(job.process.pid, signal.SIGKILL)
    job.wait()


def test_ctrl_c_reaches_the_job_and_not_the_guard(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.ctrl_c()
    job.wait()
    assert eventually(lambda: free(node) and not alive(job.guard))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_asked_to_end_puts_the_clock_back(node: FakeNvml, number: signal.Signals) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_guard(number)
    assert eventually(lambda: not alive(job.guard))
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()
    assert free(node)


def test_a_killed_guard_is_made_good_by_its_living_trainer(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_guard()
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()


def test_a_stopped_trainer_holds_up_nobody(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_trainer(signal.SIGSTOP)
    assert repair()[0].outcome is Outcome.HELD
    job.kill_trainer()
    job.wait()
    assert eventually(lambda: free(node))


def test_both_killed_the_next_start_repairs(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_both()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert not free(node)
    assert [(fixed.uuid, fixed.outcome) for fixed in repair()] == [(UUID.format(0), Outcome.RESTORED)]
    assert free(node)
    assert repair() == ()


def test_the_lock_that_an_operator_states_comes_back_even_after_both_were_killed(
    node: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATED_MHZ", "900")
    with NvmlGpu(DeviceRequest("nvml")) as operator:
        operator.lock_clock(900)
    for kill in (Job.kill_trainer, Job.kill_both):
        job = Job()
        assert eventually(lambda: node.locked_mhz() != [900, 0])
        kill(job)
        job.wait()
        assert eventually(lambda job=job: not alive(job.guard))
        repair()
        assert node.locked_mhz() == [900, 0]


def random_kills(node: FakeNvml, count: int) -> int:
    """Kill something at a random moment, ``count`` times; return how many clocks stayed locked."""
    draw, left = random.Random(count), 0
    for seed in range(count):
        node.state.gpu[0].call_us = draw.choice([0, 1000, 10_000])
        job = Job(draw.choice(["runs", "raises", "forks"]), seed)
        time.sleep(draw.random() * 0.1)
        draw.choice([Job.kill_trainer, Job.kill_guard, Job.kill_both, Job.ctrl_c, Job.kill_trainer])(job)
        time.sleep(draw.random() * 0.02)
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
        job.wait()
        eventually(lambda job=job: not alive(job.guard))
        repair()
        left += not free(node)
    return left


def test_random_kills_leave_nothing(node: FakeNvml) -> None:
    assert random_kills(node, 12) == 0
