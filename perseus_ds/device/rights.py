"""Whether this process may set the clocks of a GPU."""

from __future__ import annotations

import os
from pathlib import Path

_CAP_SYS_ADMIN = 21  # linux/capability.h


def missing_right() -> str | None:
    """Say why this process may not set clocks, or ``None`` when it may."""
    if os.geteuid() == 0 or _has_capability(_CAP_SYS_ADMIN):
        return None
    return f"user {os.geteuid()} is neither root nor has CAP_SYS_ADMIN"


def may_set_clocks(pid: int) -> bool:
    """Whether a process has the capability to; one that is not to be seen from here has not."""
    return pid > 0 and _has_capability(_CAP_SYS_ADMIN, str(pid))


def _has_capability(bit: int, process: str = "self") -> bool:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    effective = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(effective) and bool(int(effective[0], 16) >> bit & 1)
