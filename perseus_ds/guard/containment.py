"""Events that would kill a guard together with its job: the end of its container or of its control group.

In a PID namespace of its own (Docker, Kubernetes) a guard is killed with the namespace's first process, and
its journal goes with the container's files. Who names a folder in ``PERSEUS_GUARD_DIR`` is believed.

``cgroup.kill``, systemd's ``KillMode=control-group``, ``memory.oom.group`` and oomd end every process of a
group and of the groups below it. So a guard moves to a group beside or above the job's, the highest in which
the kernel lets it. Where it may not, the job and ``perseus-ds doctor`` report it.

Source: pid_namespaces(7); linux/proc_ns.h; Documentation/admin-guide/cgroup-v2.rst, "Delegation".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from perseus_ds.guard.journal import VARIABLE
from perseus_ds.guard.policy import control_groups

NAME = "perseus_ds.guards"
REMEDY = (
    "run perseus-ds guardd on the node, or mount a folder of the node and name it in PERSEUS_GUARD_DIR, "
    "or take the risk with allow_unguarded_container: true"
)
_NODES_PID_NAMESPACE = "pid:[4026531836]"
_NODES_CGROUP_NAMESPACE = "cgroup:[4026531835]"  # linux/proc_ns.h, PROC_CGROUP_INIT_INO
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))  # of version 2, alone or beside version 1
_UNIFIED = ""
_STAYS = "a guard may not leave the control group {}"
_KILLED = (_UNIFIED, "name=systemd")  # the hierarchies by which a job is ended as a whole


def in_nodes_pid_namespace() -> bool:
    """Return whether this process is numbered by the node itself; False where there is no /proc."""
    return _namespace("pid") == _NODES_PID_NAMESPACE


def why_unguarded() -> str | None:
    """Explain why a guard started here could leave a clock locked; ``None``: it could not."""
    if in_nodes_pid_namespace() or os.environ.get(VARIABLE):
        return None
    return "in a container the guard is killed together with its job, and its journal goes too"


def why_killed_together() -> str | None:
    """Explain why a guard started here would die with its job's control group; ``None``: it would not."""
    job = _job_group()
    return None if job is None or any(True for _ in _ways_out(job)) else _STAYS.format(job)


def leave_control_group() -> str | None:
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
    return _STAYS.format(job)


def _job_group() -> str | None:
    """The group of this process as far as all of it may be killed at once; ``None``: it has no such group.

    A container's end is the end of its process numbers too, which `why_unguarded` reports.
    """
    if not in_nodes_pid_namespace():
        return None
    if _namespace("cgroup") != _NODES_CGROUP_NAMESPACE:
        return "of its namespace"
    groups = control_groups()
    return next((path for name in _KILLED if (path := groups.get(name, "/")) != "/"), None)


def _ways_out(job: str) -> Iterator[Path]:
    """The groups above a job's, from the highest, in which this process may put itself elsewhere."""
    root = next((root for root in _ROOTS if (root / "cgroup.procs").exists()), None)
    if root is None or control_groups().get(_UNIFIED) != job:
        return
    group = root / job.lstrip("/")
    for above in reversed(group.parents):
        movable = above.is_relative_to(root) and os.access(above / "cgroup.procs", os.W_OK)
        if movable and os.access(above, os.W_OK):
            yield above


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return ""
