"""What a job leaves at its end: a report where something was measured, else one line that gives the reason.

``python -m perseus_ds.cli.job.after_job RUN_DIR PID RUN`` waits for the job's process to end without
an exit handler (a worker that calls ``os._exit``, a kill) and does it then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory import RunDirectory, read_events, read_summary, why_unmeasured

_LOOK_EVERY_S = 0.5


def leave(directory: RunDirectory, run: str) -> int:
    """Draw the report of what ``run`` measured, or state why there is none."""
    try:
        events = read_events(directory.events)
        why = _why_of_another(directory, events, run) or why_unmeasured(events)
        summary = read_summary(directory.summary) if why is None and directory.summary.exists() else None
    except (OSError, PerseusError) as error:
        why, summary = f"no saving is reported: {error}", None
    if why is not None:
        sys.stdout.write(f"perseus: {why}\n")
        sys.stdout.flush()
    if summary is None or summary.facts.get("run") != run:
        return 0
    from perseus_ds.cli.main import main  # noqa: PLC0415  # heavy, and now needed

    return main(["report", str(directory.path)])


def _why_of_another(directory: RunDirectory, events: Sequence[Mapping[str, object]], run: str) -> str | None:
    """Report that another job has begun in the directory since ``run`` did; None where none has."""
    began = [event.get("run") for event in events if event.get("event") == "attached"]
    if not began or began[-1] == run:
        return None
    return f"no saving is reported: another job has written to {directory.path} since this one began"


def await_end(pid: int) -> None:
    """Return when this process is no child of ``pid`` any more."""
    while os.getppid() == pid:
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    path, parent, own = sys.argv[1:4]
    if int(parent):
        await_end(int(parent))
    sys.exit(leave(RunDirectory(Path(path)), own))
