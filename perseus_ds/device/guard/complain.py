"""The one line that must be written though nobody may be left to read it."""

from __future__ import annotations

import contextlib
import sys

from perseus_ds.errors import DeviceError


def complain(line: str) -> None:
    """Write it on a terminal or log that may be gone with the job."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"perseus_ds guard: {line}\n")
        sys.stderr.flush()


def not_restored(error: DeviceError) -> str:
    """State that a clock may stay locked, and what tries again."""
    return (
        f"clock not put back, though the driver was asked for 30 s: {error}; "
        "perseus-ds clocks reset, or the next start, tries again"
    )
