"""A guard goes first where more wants to run than there are cores: no restore queues up."""

from __future__ import annotations

import contextlib
import os

_NICENESS = -10


def go_first() -> None:
    """Who may set clocks mostly may do this too; a guard needs a tenth of a millisecond per request."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
