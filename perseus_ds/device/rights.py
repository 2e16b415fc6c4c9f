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


def _has_capability(bit: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    effective = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(effective) and bool(int(effective[0], 16) >> bit & 1)
