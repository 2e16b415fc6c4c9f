"""A guard process as its trainer knows it: its start, what it guards, and its last duty if it was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import perseus_ds
from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.guard.journal import VARIABLE, place
from perseus_ds.guard.log import complain, not_restored
from perseus_ds.guard.protocol import KIND
from perseus_ds.guard.repair import repair_without_journal

_END_S = 40.0  # a guard insists for 30 s with a driver that refuses


class SpawnedGuard:
    """A process to outlive; ``restore_clock_mhz`` is the clock that it puts back.

    ``own`` is the trainer's own handle of the GPU, open for as long as this is used.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        own: Gpu,
        backend: str,
        *,
        restore_clock_mhz: int | None = None,
        end_s: float = _END_S,
    ) -> None:
        self.pid = process.pid
        self.backend = backend
        self.restore_clock_mhz = restore_clock_mhz
        self.has_taken = False
        self._process = process
        self._own = own
        self._end_s = end_s
        self._once = threading.Lock()
        self._restored = False

    def wait(self) -> None:
        """Wait until it has ended; report one that does not, which its driver may hold up.

        It is waited for once: the second call only looks.
        """
        try:
            self._process.wait(self._end_s)
        except subprocess.TimeoutExpired:
            if self._end_s:
                uuid = self._own.identify().uuid
                complain(
                    f"the guard (process {self.pid}) hangs: the clock of {uuid} is not put back until "
                    "its driver answers; if it never does, perseus-ds clocks reset will"
                )
            self._end_s = 0.0

    def make_good(self) -> None:
        """Do its last duty where it could not: it was killed, or its driver refused to the end.

        Its socket may close before its locks are free, so its end is waited for; a stopped one goes on. A
        failure is reported, and tried again at the next call.
        """
        with self._once:
            self._process.send_signal(signal.SIGCONT)
            self.wait()
            if self._restored or not self.has_taken or not self._process.returncode:
                return
            try:
                repair_without_journal(self._own, self.backend, self.restore_clock_mhz)
            except DeviceError as error:
                complain(not_restored(error))
            else:
                self._restored = True


def _folder() -> dict[str, str]:
    """The journals' folder as this process sees it: a guard has another working directory."""
    return {VARIABLE: str(place())} if os.environ.get(VARIABLE) else {}


def spawn(restore_clock_mhz: int | None = None) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard in a session of its own, so that Ctrl-C for the job does not end it before the restore.

    Raises:
        DeviceUnavailableError: no process can be started.

    Cost: about 0.1 s until the guard answers.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    root = str(Path(perseus_ds.__file__).resolve().parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-P", "-m", "perseus_ds.guard", str(theirs.fileno()), str(os.getpid())]
    if restore_clock_mhz is not None:
        command.append(str(restore_clock_mhz))
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - this Python, our own module
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), **_folder()},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise DeviceUnavailableError(f"cannot start a guard: {error}") from error
    return ours, process


# A guard started here outlives its trainer, but not where the trainer's end is the end of all processes.
#
# In a PID namespace of its own (Docker, Kubernetes) a guard is killed with the namespace's first process, and
# its journal goes with the container's files. Who names a folder in ``PERSEUS_GUARD_DIR`` is believed.
#
# Source: pid_namespaces(7), "The namespace init process"; linux/proc_ns.h, PROC_PID_INIT_INO.

_NODES_PID_NAMESPACE = "pid:[4026531836]"

REMEDY = (
    "run perseus-ds guardd on the node, or mount a folder of the node and name it in PERSEUS_GUARD_DIR, "
    "or take the risk with allow_unguarded_container: true"
)


def in_nodes_pid_namespace() -> bool:
    """Whether this process is numbered by the node itself."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _NODES_PID_NAMESPACE
    except OSError:  # no /proc: nothing is known, nothing is promised
        return False


def why_unguarded() -> str | None:
    """Explain why a guard started here could leave a clock locked; ``None``: it could not."""
    if in_nodes_pid_namespace() or os.environ.get(VARIABLE):
        return None
    return "in a container the guard is killed together with its job, and its journal goes too"


# A guard in a control group of its own, so that who kills the job's whole group leaves its guard alive.
#
# ``cgroup.kill``, systemd's ``KillMode=control-group``, ``memory.oom.group`` and oomd end every process of a
# group and of the groups below it, a guard with its trainer. So a guard moves to a group beside or above the
# job's, the highest in which the kernel lets it. Where it may not, the job and ``perseus-ds doctor`` say so.
#
# Source: Documentation/admin-guide/cgroup-v2.rst, "Delegation" (who may move a process), "cgroup.kill".

NAME = "perseus_ds.guards"

_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))  # of version 2, alone or beside version 1
_UNIFIED = ""
_KILLED = (_UNIFIED, "name=systemd")  # the hierarchies by which a job is ended as a whole
_NODES_CGROUP_NAMESPACE = "cgroup:[4026531835]"  # linux/proc_ns.h, PROC_CGROUP_INIT_INO


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
        return str(Path("/proc/self/ns/cgroup").readlink()) == _NODES_CGROUP_NAMESPACE
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
