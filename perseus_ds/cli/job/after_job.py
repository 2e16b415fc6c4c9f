"""What a job leaves at its end: a report where something was measured, else one line that gives the reason.

``python -m perseus_ds.cli.job.after_job RUN_DIR PID`` waits for the job's process to end without a farewell
(a worker that calls ``os._exit``, a kill) and does it then.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory import RunDirectory, read_events, why_unmeasured

_LOOK_EVERY_S = 0.5


def leave(directory: RunDirectory) -> int:
    """Draw the report of what was measured, or state why nothing was."""
    try:
        why = why_unmeasured(read_events(directory.events))
    except (OSError, PerseusError) as error:
        why = f"no saving is reported: {error}"
    if why is not None:
        sys.stdout.write(f"perseus: {why}\n")
        sys.stdout.flush()
    if why is not None or not directory.summary.exists():
        return 0
    from perseus_ds.cli.main import main  # noqa: PLC0415  # heavy, and now needed

    return main(["report", str(directory.path)])


def await_end(pid: int) -> None:
    """Return when this process is no child of ``pid`` any more."""
    while os.getppid() == pid:
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    path, parent = sys.argv[1:3]
    if int(parent):
        await_end(int(parent))
    sys.exit(leave(RunDirectory(Path(path))))
