"""One random kill: who dies, how, when, and what else is wrong on that node."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass

VICTIMS = ("trainer", "guard", "both", "group", "launcher", "container", "container's rank")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGSTOP")
MOMENTS = ("start", "calibration", "flood", "steady", "forked workers")
DRIVERS = ("0 ms", "10 ms", "200 ms", "5 % errors", "1 s of errors")
DISKS = ("fine", "full", "read-only", "folder removed")
CLOCKS = ("still", "still", "still", "jumping")
_HOW = {"start": "runs", "calibration": "calibrates", "flood": "floods", "steady": "runs"}


@dataclass(frozen=True)
class Case:
    """A point of the campaign; ``wait_s`` passes between the moment and the kill."""

    number: int
    victim: str
    signal_name: str
    moment: str
    driver: str
    disk: str
    clock: str
    service: bool
    wait_s: float

    @property
    def signal(self) -> signal.Signals:
        """What is sent."""
        return signal.Signals[self.signal_name]

    @property
    def how(self) -> str:
        """What the trainer is told to do meanwhile."""
        return _HOW.get(self.moment, "forks")

    @property
    def in_container(self) -> bool:
        """Whether the trainer has a PID namespace of its own."""
        return self.victim.startswith("container")


def drawn(number: int, seed: int) -> Case:
    """Draw a case; the same number and seed give the same one."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - who dies is no secret
    victim = draw.choice(VICTIMS)
    return Case(
        number=number,
        victim=victim,
        # a stopped process is killed a moment later; a container's first process takes nothing but SIGKILL
        signal_name="SIGKILL" if victim.startswith("container") else draw.choice(SIGNALS),
        moment=draw.choice(MOMENTS),
        driver=draw.choice(DRIVERS),
        disk=draw.choice(DISKS),
        clock=draw.choice(CLOCKS),
        service=draw.random() < (0.5 if victim.startswith("container") else 0.15),
        wait_s=draw.random() * 0.3,
    )
