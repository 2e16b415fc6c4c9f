"""Plan beside the training: a process of its own, polled, never waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import PlanError
from perseus_ds.files import appended, read_bounded
from perseus_ds.plan import PlanRequest, write_request
from perseus_ds.run_directory.paths import RunDirectory, write_whole
from perseus_ds.runtime.lifecycle.processes import end_in_time

_MOST_LOG_BYTES = 16 << 20

LONG_S = 60.0
"""Planning takes seconds; a user who waits this long wonders."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """One plan to be made: what is asked, of which profile, into which file."""

    request: PlanRequest
    profile: Path
    plan: Path


class BackgroundPlanner:
    """Runs of ``python -m perseus_ds.plan`` on rank 0, one after another, at low priority where one is long.

    Processes and not threads: the solver would hold the interpreter, and a fork would copy the
    communicators of the job.

    Shape: ``requests`` and the ``files`` that hold the plans [groups].
    """

    def __init__(self, directory: RunDirectory, requests: Sequence[PlanJob]) -> None:
        self._directory = directory
        self._waiting = list(requests)
        self._began_s = time.monotonic()
        self.files = [request.plan for request in requests]
        self._start(self._waiting.pop(0))

    @property
    def lasted_s(self) -> float:
        """Seconds since the first plan was begun."""
        return time.monotonic() - self._began_s

    def ready(self) -> bool:
        """Whether every plan file is there; begins the next one where one is.

        Raises:
            PlanError: the planner ended without one; the message is its last line.
        """
        code = self._process.poll()
        if code is None:
            return False
        if code != 0:
            said = read_bounded(self._log, most_bytes=_MOST_LOG_BYTES).decode(errors="replace")
            lines = said.strip().splitlines() or [f"exit code {code}"]
            raise PlanError(f"planning failed: {lines[-1]}", hint=f"all of it in {self._log}")
        if self._waiting:
            self._start(self._waiting.pop(0))
            return False
        return True

    def wait(self) -> None:
        """Wait until it has ended, well or not."""
        while not self.ready():
            self._process.wait()

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            end_in_time(self._process)

    def _start(self, job: PlanJob) -> None:
        directory, mark = self._directory, job.plan.stem.removeprefix("plan")
        self._log = directory.path / f"planner{mark}.log"
        asked = directory.path / f"plan_request{mark}.json"
        write_request(asked, job.request)
        files = [job.profile, asked, job.plan]
        write_whole(self._log, "")
        with appended(self._log) as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own module, our own files
                [sys.executable, "-P", "-m", "perseus_ds.plan", *map(str, files)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )


class LongPlanning:
    """Due after a minute, then each time that planning has taken twice as long as at the last message."""

    def __init__(self) -> None:
        self._next_s = LONG_S

    def is_due(self, lasted_s: float) -> bool:
        """Whether a "still planning" line is due after so long; asked once, answered once."""
        if lasted_s < self._next_s:
            return False
        self._next_s = 2 * lasted_s
        return True
