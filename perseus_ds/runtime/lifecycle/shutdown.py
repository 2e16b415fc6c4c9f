"""The end of a job: clocks back, threads ended, and from rank 0 a report, or the reason for its absence."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from weakref import ref

from perseus_ds.runtime.lifecycle.processes import end_in_time
from perseus_ds.runtime.lifecycle.session import Session

_PATIENCE_S = 120.0
_LAST_ERROR = ("last_type", "last_exc")  # where the interpreter keeps what ended the program


def at_exit(session: Session, run_dir: Path, *, run: str, publishes: bool) -> None:
    """Arrange for a session's end with its process; rank 0 leaves a report, or the reason for its absence.

    Exit handlers do not run where a worker ends by ``os._exit`` or is killed. So a small process waits beside
    it, in a session of its own, and does it then.
    """
    known = ref(session)
    beside = _after_job(run_dir, run, of=os.getpid()) if publishes else None

    def end() -> None:
        present = known()
        if present is not None:
            present.end(well=not any(hasattr(sys, name) for name in _LAST_ERROR))
        if beside is not None:
            end_in_time(beside)
        if publishes:
            _leave(run_dir, run)

    atexit.register(end)


def _leave(run_dir: Path, run: str) -> None:
    """Leave what there is, in a process of its own: drawing stays out of training."""
    done = _after_job(run_dir, run, of=0)
    if done is None:
        return
    try:
        done.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        done.kill()
        sys.stdout.write(f"perseus: no report: {error}\n")


def _after_job(run_dir: Path, run: str, *, of: int) -> subprocess.Popen[bytes] | None:
    """Begin `perseus_ds.cli.job.after_job`, which waits for the end of process ``of`` (0: for nothing)."""
    command = [sys.executable, "-P", "-m", "perseus_ds.cli.job.after_job", str(run_dir), str(of), run]
    try:
        return subprocess.Popen(  # noqa: S603  # our own module
            command, stdin=subprocess.DEVNULL, start_new_session=of != 0
        )
    except OSError as error:
        sys.stdout.write(f"perseus: no report: {error}\n")
        return None
