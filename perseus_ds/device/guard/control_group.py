"""A guard in a control group of its own, so that who kills the job's whole group leaves its guard alive.

``cgroup.kill``, systemd's ``KillMode=control-group``, ``memory.oom.group`` and oomd end every process of a
group and of the groups below it, a guard with its trainer. So a guard moves to a group beside or above the
job's, the highest in which the kernel lets it. Where it may not, the job and ``perseus-ds doctor`` report it.

Source: Documentation/admin-guide/cgroup-v2.rst, "Delegation" (who may move a process), "cgroup.kill".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from perseus_ds.device.guard.container import in_nodes_pid_namespace

NAME = "perseus_ds.guards"

_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))  # of version 2, alone or beside version 1
_UNIFIED = ""
_KILLED = (_UNIFIED, "name=systemd")  # the hierarchies by which a job is ended as a whole
_NODES_NAMESPACE = "cgroup:[4026531835]"  # linux/proc_ns.h, PROC_CGROUP_INIT_INO


def why_killed_together() -> str | None:
    """Explain why a guard started here would die with its job's control group; ``None``: it would not."""
    job = _job_group()
    if job is None or any(True for _ in _ways_out(job)):
        return None
    return f"a guard may not leave the control group {job}"


def leave() -> str | None:
    """Move this process to a control group for guards; return why it stays where its job is killed."""
    job = _job_group()
    if job is None:
        return None
    for above in _ways_out(job):
        own = above / NAME
        try:
            own.mkdir(exist_ok=True)
            (own / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        except OSError:
            with contextlib.suppress(OSError):
                own.rmdir()
        else:
            return None
    return f"a guard may not leave the control group {job}"


def _job_group() -> str | None:
    """The group of this process as far as all of it may be killed at once; ``None``: it has no such group.

    A container's end is the end of its process numbers too, which is another story (`container`).
    """
    if not in_nodes_pid_namespace():
        return None
    if not _in_nodes_namespace():
        return "of its namespace"
    groups = _groups()
    return next((path for name in _KILLED if (path := groups.get(name, "/")) != "/"), None)


def _ways_out(job: str) -> Iterator[Path]:
    """The groups above a job's, from the highest, in which this process may put itself elsewhere."""
    root = next((root for root in _ROOTS if (root / "cgroup.procs").exists()), None)
    if root is None or _groups().get(_UNIFIED) != job:
        return
    group = root / job.lstrip("/")
    for above in reversed(group.parents):
        movable = above.is_relative_to(root) and os.access(above / "cgroup.procs", os.W_OK)
        if movable and os.access(above, os.W_OK):
            yield above


def _in_nodes_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/cgroup").readlink()) == _NODES_NAMESPACE
    except OSError:
        return False


def _groups() -> dict[str, str]:
    """The control groups of this process by controller; that of version 2 has none. Source: cgroups(7)."""
    groups = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            groups[controllers] = path
    return groups
