"""One random kill: who dies, how, when, on whose GPU, and what else is wrong on that node."""

from __future__ import annotations

import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[3] / "tests"
sys.path[:0] = [str(TESTS / folder) for folder in ("fake_nvml", "fake_amdsmi", "e2e/guard")]

import fake_amdsmi  # noqa: E402 - the line above says where it is
import fake_nvml  # noqa: E402

VICTIMS = {
    "trainer": 3,
    "guard": 3,
    "both": 2,
    "group": 2,
    "launcher": 2,
    "container": 1,
    "container's rank": 1,
}
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGSTOP")
MOMENTS = ("start", "calibration", "flood", "steady", "forked workers")
DRIVERS = ("0 ms", "10 ms", "200 ms")
ERRORS_PCT = (0, 0, 5, 20)  # of all calls, from the start of the job to the next start's end
ERRORS_S = (0.0, 0.0, 0.05, 0.3, 1.0, 3.0)  # of errors and nothing else, from the kill on
DISKS = ("fine", "full", "read-only", "folder removed")
CLOCKS = ("still", "still", "still", "jumping")
_START_S = 1.5  # from nothing to a clock that is set
_HOW = {"start": "runs", "calibration": "calibrates", "flood": "floods", "steady": "runs"}


@dataclass(frozen=True)
class Case:
    """A point of the campaign; ``wait_s`` passes between the moment and the kill.

    Errors strike every call of the driver's library (open, read, set, reset, close). They have one ``code``
    or, where that is ``None``, another one each time.
    """

    number: int
    victim: str
    signal_name: str
    moment: str
    vendor: str
    driver: str
    errors_pct: int
    errors_s: float
    code: int | None
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
        """What the trainer does meanwhile."""
        return _HOW.get(self.moment, "forks")

    @property
    def is_quiet(self) -> bool:
        """Whether its driver is fast and makes no errors."""
        return self.driver != "200 ms" and self.errors_pct == 0 and self.errors_s == 0.0

    @property
    def in_container(self) -> bool:
        """Whether the trainer has a PID namespace of its own."""
        return self.victim.startswith("container")


def drawn(number: int, seed: int) -> Case:
    """Draw a case; the same number and seed give the same one.

    AMD's GPUs have no node service and no slow driver here.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - who dies is no secret
    vendor = draw.choice(("nvidia", "nvidia", "nvidia", "amd"))
    amd = vendor == "amd"
    [victim] = draw.choices(list(VICTIMS), list(VICTIMS.values()))
    moment = draw.choice(MOMENTS)
    return Case(
        number=number,
        victim=victim,
        # a stopped process is killed a moment later; a container's first process takes nothing but SIGKILL
        signal_name="SIGKILL" if victim.startswith("container") else draw.choice(SIGNALS),
        moment=moment,
        vendor=vendor,
        driver=DRIVERS[0] if amd else draw.choice(DRIVERS),
        errors_pct=draw.choice(ERRORS_PCT),
        errors_s=draw.choice(ERRORS_S),
        code=draw.choice((None, draw.choice(fake_amdsmi.CODES if amd else fake_nvml.CODES))),
        disk=draw.choice(DISKS),
        clock=CLOCKS[0] if amd else draw.choice(CLOCKS),
        service=not amd and draw.random() < (0.5 if victim.startswith("container") else 0.15),
        wait_s=draw.random() * (_START_S if moment == "start" else 0.3),
    )
