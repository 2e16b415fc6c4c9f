"""The end of a job: clocks back, threads ended, and from rank 0 a report, or the reason for its absence."""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from weakref import WeakSet

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory.events import read_events, why_unmeasured
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import read_summary
from perseus_ds.runtime.event_log import log_line
from perseus_ds.runtime.lifecycle.session import Session

_PATIENCE_S = 120.0
_LAST_ERROR = ("last_type", "last_exc")  # where the interpreter keeps what ended the program

_sessions: WeakSet[Session] = WeakSet()
_runs: dict[Path, str] = {}
"""The last run of each run directory that this process reports on."""


def at_exit(session: Session, run_dir: Path, *, run: str, publishes: bool) -> None:
    """Arrange for a session's end with its process; rank 0 leaves a report, or the reason for its absence.

    Exit handlers do not run where a worker ends by ``os._exit`` or is killed: the guard restores the clocks,
    and ``perseus-ds report`` draws what was measured.
    """
    _sessions.add(session)
    if publishes:
        _runs[run_dir] = run
    _register()


@cache
def _register() -> None:
    """Have one handler end all sessions; it runs before the one that waits for their devices."""
    atexit.register(_end)


def _end() -> None:
    well = not any(hasattr(sys, name) for name in _LAST_ERROR)
    for session in list(_sessions):
        session.end(well=well)
    for run_dir, run in _runs.items():
        _leave(RunDirectory(run_dir), run)


def _leave(directory: RunDirectory, run: str) -> None:
    """Draw the report of what ``run`` measured, or log why there is none."""
    try:
        events = read_events(directory.events)
        why = _why_of_another(directory, events, run) or why_unmeasured(events)
        if why is None and directory.summary.exists() and _run_of(directory) == run:
            _draw(directory)
    except (OSError, PerseusError, subprocess.SubprocessError) as error:
        why = f"no saving is reported: {error}"
    if why is not None:
        log_line(why)


def _run_of(directory: RunDirectory) -> object:
    return read_summary(directory.summary).facts.get("run")


def _why_of_another(directory: RunDirectory, events: Sequence[Mapping[str, object]], run: str) -> str | None:
    """Report that another job has begun in the directory since ``run`` did; None where none has."""
    began = [event.get("run") for event in events if event.get("event") == "attached"]
    if not began or began[-1] == run:
        return None
    return f"no saving is reported: another job has written to {directory.path} since this one began"


def _draw(directory: RunDirectory) -> None:
    """Draw the page in a process of its own, with a time limit: a job does not hang for its report."""
    program = "import sys; from perseus_ds.cli.main import main; sys.exit(main())"
    done = subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-P", "-c", program, "report", str(directory.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        log_line(line)
