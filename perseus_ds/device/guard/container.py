"""Whether a guard started here outlives its trainer: not where the trainer's end is the end of all processes.

In a PID namespace of its own (Docker, Kubernetes) a guard is killed with the namespace's first process, and
its journal may go with the container's files.

Source: pid_namespaces(7), "The namespace init process"; linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.device.guard.claim.folder import VARIABLE, place

_NODES_NAMESPACE = "pid:[4026531836]"
_LAYERS = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_MEMORY = frozenset({"tmpfs", "ramfs"})

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


def sees_the_node() -> bool:
    """Whether every guard's journal of this node would be seen from here."""
    return in_nodes_pid_namespace() or journal_is_on_the_node()


def journal_is_on_the_node(mounts: str | None = None) -> bool:
    """Whether a folder for journals was named that outlives this container, as far as can be seen.

    It does not where it lies on the container's own layer, or in memory that was mounted for it alone;
    ``mounts`` is what ``/proc/self/mountinfo`` says.
    """
    if not os.environ.get(VARIABLE):
        return False
    known = [_Mount.parse(line) for line in (_mountinfo() if mounts is None else mounts).splitlines()]
    layered = any(mount.point == "/" and mount.kind in _LAYERS for mount in known)
    here = _mount_of(Path(os.path.realpath(place())), known)
    if not layered or here is None:
        return True
    return here.kind not in _LAYERS and not (here.kind in _MEMORY and here.root == "/")


def why_unguarded() -> str | None:
    """Say why a guard started here could leave a clock locked; ``None``: it could not."""
    if in_nodes_pid_namespace() or journal_is_on_the_node():
        return None
    return "in a container the guard is killed together with its job, and its journal goes too"


@dataclass(frozen=True, slots=True)
class _Mount:
    """One mount: where, of what kind, and which of the filesystem's folders stands there."""

    point: str
    root: str
    kind: str

    @classmethod
    def parse(cls, line: str) -> _Mount:
        """Read a line of mountinfo. Source: proc_pid_mountinfo(5)."""
        words = [word.replace("\\040", " ") for word in line.split(" ")]
        return cls(point=words[4], root=words[3], kind=words[words.index("-") + 1])


def _mount_of(folder: Path, known: Sequence[_Mount]) -> _Mount | None:
    """The mount that holds a folder: of those above it the nearest, and of these the last."""
    above = [mount for mount in known if folder.is_relative_to(mount.point)]
    return max(enumerate(above), key=lambda pair: (len(pair[1].point), pair[0]), default=(0, None))[1]


def _mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
