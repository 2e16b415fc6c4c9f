"""The clock after a process of a job has died, by state and process: real kills, the fake driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fake_nvml import FakeNvml
from guarded_job import ATTACHED, DETACHED
from hosts import eventually, family
from processes import alive

PROGRAM = str(Path(__file__).with_name("guarded_job.py"))
LOCKED = "locked"
TARGETS = ("trainer", "group", "launcher", "guard")
PATIENCE_S = 200.0


class Job:
    """A launcher, its training process, and whatever guards that one's GPU."""

    def __init__(self, node: FakeNvml, folder: Path, index: int, state: str) -> None:
        self.node, self.index, self.state = node, index, state
        self.run_dir = folder / f"run{index}"
        environment = node.environment() | {
            "LOCAL_RANK": str(index),
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        }
        with (folder / f"out{index}").open("w") as out:
            self.launcher = subprocess.Popen(
                [sys.executable, PROGRAM, "launch", str(self.run_dir), state],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def locked(self) -> bool:
        return bool(self.node.locked_mhz()[self.index])

    def below(self) -> list[int]:
        """The processes under the launcher, the training process first."""
        return family(self.launcher.pid)[-2::-1]

    def is_there(self, name: str) -> bool:
        return Path(f"{self.run_dir}.{name}").exists()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait(30)


def _wait(true: Callable[[], bool], what: str) -> None:
    assert eventually(true, PATIENCE_S), f"not within {PATIENCE_S:.0f} s: {what}"


def _bring(job: Job) -> None:
    """Wait until a job is in its state."""
    _wait(lambda: job.is_there("trained") and len(job.below()) > 1, f"job {job.index} trains with its guard")
    if job.state == ATTACHED:
        return
    _wait(lambda: job.locked, f"job {job.index} locks a clock")
    if job.state == DETACHED:
        Path(f"{job.run_dir}.locked").touch()
        _wait(lambda: job.is_there("detached"), f"job {job.index} is detached")


def _kill(job: Job, target: str) -> list[int]:
    """Kill one of them by SIGKILL and return the processes that stood below the training process."""
    trainer, *others = job.below()
    if target == "trainer":
        os.kill(trainer, signal.SIGKILL)
    elif target == "group":
        os.killpg(job.launcher.pid, signal.SIGKILL)
    elif target == "launcher":
        os.kill(job.launcher.pid, signal.SIGKILL)
    else:
        for pid in others:
            with suppress(OSError):
                if b"guard" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
    return [trainer, *others]


def table(state: str, folder: Path) -> dict[str, Any]:
    """Kill each target in one state; the clock and the processes once all is quiet."""
    node = FakeNvml(folder / "gpus", gpus=len(TARGETS))
    jobs = [Job(node, folder, index, state) for index in range(len(TARGETS))]
    found = {}
    try:
        for job in jobs:
            _bring(job)
        struck = {target: _kill(job, target) for job, target in zip(jobs, TARGETS, strict=True)}
        for job, target in zip(jobs, TARGETS, strict=True):
            trainer, *others = struck[target]
            _wait(lambda job=job: not job.locked, f"the clock of job {job.index} is back")
            ends = target in ("trainer", "group")
            _wait(
                lambda pids=[trainer, *others], ends=ends: not (ends and any(map(alive, pids))),
                f"{target}: it and all below end",
            )
            found[target] = {"clock": "default", "training goes on": alive(trainer)}
    finally:
        for job in jobs:
            job.end()
        _wait(lambda: not node.processes(), "no process is left")
    return found


CASES = {state: partial(table, state) for state in (ATTACHED, LOCKED, DETACHED)}
