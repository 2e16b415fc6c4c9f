"""Whether a guard started here outlives its trainer: not where the trainer's end is the end of all processes.

In a PID namespace of its own (Docker, Kubernetes) a guard is killed with the namespace's first process. Its
journal may go with the container's files.

Source: pid_namespaces(7), "The namespace init process"; linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.device.guard.claim.folder import VARIABLE, place

_NODES_NAMESPACE = "pid:[4026531836]"
_LAYERS = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_MEMORY = frozenset({"tmpfs", "ramfs"})
_PUT_INTO_CONTAINERS = frozenset(
    {"/etc/hosts", "/etc/hostname", "/dev/termination-log", "/run/.containerenv"}
)
_ENDS_WITH_ITS_POD = "/kubernetes.io~empty-dir/"
_ENDS_WITH_ITS_CONTAINER = re.compile(r"/volumes/[0-9a-f]{64}/_data(/|$)")  # a volume without a name

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


def journal_is_on_the_node(mounts: str | None = None) -> bool:
    """Whether a folder for journals was named that outlives this container, as far as can be seen.

    It does not where it lies on the container's own root, of whatever kind, or in memory mounted for it
    alone. Nor does it in a volume that ends with the container or its pod. ``mounts`` is the text of
    ``/proc/self/mountinfo``.
    """
    if not os.environ.get(VARIABLE):
        return False
    known = [_Mount.parse(line) for line in (_mountinfo() if mounts is None else mounts).splitlines()]
    here = _mount_of(Path(os.path.realpath(place())), known)
    if here is None or not any(mount.is_of_a_container for mount in known):
        return True
    return not here.ends_with_its_container


def why_unguarded() -> str | None:
    """Explain why a guard started here could leave a clock locked; ``None``: it could not."""
    if in_nodes_pid_namespace() or journal_is_on_the_node():
        return None
    return "in a container the guard is killed together with its job, and its journal goes too"


@dataclass(frozen=True, slots=True)
class _Mount:
    """One mount: where, of what kind, and which of the filesystem's folders stands there."""

    point: str
    root: str
    kind: str

    @property
    def is_of_a_container(self) -> bool:
        """Whether only containers have this: a layered root, a part of something as root, a file put in."""
        root = self.point == "/" and (self.kind in _LAYERS or self.root != "/")
        return root or self.point in _PUT_INTO_CONTAINERS

    @property
    def ends_with_its_container(self) -> bool:
        """Whether what lies here goes when the container, or its pod, goes."""
        own = self.point == "/" or self.kind in _LAYERS or (self.kind in _MEMORY and self.root == "/")
        passing = _ENDS_WITH_ITS_POD in self.root or _ENDS_WITH_ITS_CONTAINER.search(self.root)
        return own or bool(passing)

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
