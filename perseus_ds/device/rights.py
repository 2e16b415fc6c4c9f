"""The right to set the clocks of a GPU: the driver asks for CAP_SYS_ADMIN on the node itself.

Source: capabilities(7); user_namespaces(7): the maker of a namespace has every capability in it and none
outside. The node's own shows all numbers as they are.
"""

from __future__ import annotations

import os
from pathlib import Path

_CAP_SYS_ADMIN = 21  # linux/capability.h
_ALL_AS_THEY_ARE = ["0", "0", "4294967295"]


def missing_right() -> str | None:
    """Return why this process may not set clocks, or ``None`` when it may."""
    if not _has_capability():
        who = "root of a container" if os.geteuid() == 0 else f"user {os.geteuid()}"
        return f"{who} without CAP_SYS_ADMIN"
    return None if _in_nodes_user_namespace() else "CAP_SYS_ADMIN in a user namespace alone"


def _has_capability() -> bool:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)


def _in_nodes_user_namespace() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _ALL_AS_THEY_ARE
    except OSError:
        return False
