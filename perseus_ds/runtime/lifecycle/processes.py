"""Ends processes of ours without waiting for what may never come."""

from __future__ import annotations

import contextlib
import subprocess

_PATIENCE_S = 2.0


def end_in_time(process: subprocess.Popen[bytes], *, patience_s: float = _PATIENCE_S) -> None:
    """End a process; one that a hung file system or driver keeps is left to the operating system.

    Cost: twice ``patience_s`` at most, mostly nothing.
    """
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
