"""The end of a job: clocks back, threads ended, and a report left by rank 0."""

from __future__ import annotations

import atexit
import subprocess
import sys
from pathlib import Path
from weakref import ref

from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.lifecycle.session import Session

_PATIENCE_S = 120.0
_LAST_ERROR = ("last_type", "last_exc")  # where the interpreter keeps what ended the program


def at_exit(session: Session, run_dir: str, *, publishes: bool) -> None:
    """Arrange for a session's end with its process; on rank 0 a report is drawn from what was measured."""
    known = ref(session)

    def end() -> None:
        present = known()
        if present is not None:
            present.end(well=not any(hasattr(sys, name) for name in _LAST_ERROR))
        if publishes:
            _report(RunDirectory(Path(run_dir)))

    atexit.register(end)


def _report(directory: RunDirectory) -> None:
    """Print the table and leave the pictures, in a process of its own: drawing stays out of training."""
    if not directory.summary.exists():
        return
    command = [sys.executable, "-m", "perseus_ds.cli", "report", str(directory.path)]
    try:
        subprocess.run(command, timeout=_PATIENCE_S, check=False)  # noqa: S603  # our own module
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stdout.write(f"perseus: no report: {error}\n")
