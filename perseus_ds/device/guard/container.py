"""A guard started here outlives its trainer, but not where the trainer's end is the end of all processes.

In a PID namespace of its own (Docker, Kubernetes) a guard is killed with the namespace's first process, and
its journal goes with the container's files. Who names a folder in ``PERSEUS_GUARD_DIR`` is believed.

Source: pid_namespaces(7), "The namespace init process"; linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
from pathlib import Path

from perseus_ds.device.guard.claim.folder import VARIABLE

_NODES_NAMESPACE = "pid:[4026531836]"

REMEDY = (
    "run perseus-ds guardd on the node, or mount a folder of the node and name it in PERSEUS_GUARD_DIR, "
    "or take the risk with allow_unguarded_container: true"
)


def in_nodes_pid_namespace() -> bool:
    """Whether this process is numbered by the node itself."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _NODES_NAMESPACE
    except OSError:  # no /proc: nothing is known, nothing is promised
        return False


def why_unguarded() -> str | None:
    """Explain why a guard started here could leave a clock locked; ``None``: it could not."""
    if in_nodes_pid_namespace() or os.environ.get(VARIABLE):
        return None
    return "in a container the guard is killed together with its job, and its journal goes too"
