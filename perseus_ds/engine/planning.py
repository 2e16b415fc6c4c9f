"""Plan beside the training: a process of its own, polled, never waited for."""

from __future__ import annotations

import os
import subprocess
import sys

from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanRequest, write_request
from perseus_ds.run_directory import RunDirectory

_NICE = 10


class BackgroundPlanner:
    """One run of ``python -m perseus_ds.plan`` on rank 0, at low priority.

    A process and not a thread: the solver would hold the interpreter, and a fork would copy the
    communicators of the job.
    """

    def __init__(self, directory: RunDirectory, request: PlanRequest) -> None:
        self._directory = directory
        self._log = directory.path / "planner.log"
        asked = directory.path / "plan_request.json"
        write_request(asked, request)
        command = [sys.executable, "-m", "perseus_ds.plan", directory.profile, asked, directory.plan]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own module, our own files
                [str(part) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                preexec_fn=_step_back,  # noqa: PLW1509  # one system call, no lock is taken
            )

    def ready(self) -> bool:
        """Whether the plan file is there.

        Raises:
            PlanError: the planner ended without one; the message is its last line.
        """
        code = self._process.poll()
        if code is None:
            return False
        if code != 0:
            lines = self._log.read_text().strip().splitlines() or [f"exit code {code}"]
            raise PlanError(f"planning failed: {lines[-1]}", hint=f"all of it in {self._log}")
        return True

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()


def _step_back() -> None:
    os.nice(_NICE)
