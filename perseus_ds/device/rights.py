"""Whether a process may set the clocks of a GPU: the driver asks for CAP_SYS_ADMIN on the node itself.

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
    if not _has_capability(_status_of("self")):
        who = "root of a container" if os.geteuid() == 0 else f"user {os.geteuid()}"
        return f"{who} without CAP_SYS_ADMIN"
    return None if _in_nodes_user_namespace("self") else "CAP_SYS_ADMIN in a user namespace alone"


def may_set_clocks(pid: int, uid: int) -> bool:
    """Whether a process that was seen as a user may; one that is not visible from here may not.

    It has to be that user through and through. A setuid program that somebody starts instead has the
    capability, and does not vouch for what it was handed.
    """
    status = _status_of(str(pid)) if pid > 0 else {}
    users = set(status.get("Uid", "").split())
    return users == {str(uid)} and _has_capability(status) and _in_nodes_user_namespace(str(pid))


def _status_of(process: str) -> dict[str, str]:
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def _has_capability(status: dict[str, str]) -> bool:
    return bool(int(status.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1)


def _in_nodes_user_namespace(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/uid_map").read_text(encoding="ascii").split() == _ALL_AS_THEY_ARE
    except OSError:
        return False
