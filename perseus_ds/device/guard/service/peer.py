"""The process at the other end of a socket, by the kernel's word, and which GPUs it may open itself."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import DevicePermissionError

_SO_PEERPIDFD = 77  # linux/socket.h, since 6.5
_CREDENTIALS = struct.Struct("iii")
_DESCRIPTOR = struct.Struct("i")
_ROOT = Path("/sys/fs/cgroup")
_LIMIT_S = 5.0
_MAY, _CANNOT_JOIN = 0, 3
_TRY = f"""
device=$1; shift
for group; do echo $$ > "$group" || {{ echo "$group"; exit {_CANNOT_JOIN}; }}; done
[ -c "$device" ] && exec 3<> "$device"
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process; ``cgroup`` is its control group, ``devices`` that of version 1's device controller."""

    pid: int
    uid: int
    gid: int
    cgroup: str = ""
    devices: str = ""

    def __str__(self) -> str:
        return f"user {self.uid}, process {self.pid}"


@dataclass(frozen=True, slots=True)
class Caller:
    """A peer, and a descriptor that becomes readable when it ends (-1: the kernel gives none)."""

    peer: Peer
    pidfd: int = -1

    def close(self) -> None:
        """Let go of the descriptor."""
        if self.pidfd >= 0:
            os.close(self.pidfd)


def caller_of(sock: socket.socket) -> Caller:
    """Ask the kernel who connected. The caller closes the answer.

    A process number may be given to another process at any moment. With the kernel's own descriptor of the
    one that connected, its control group is believed only if it still lived after that was read.

    Source: unix(7), SO_PEERCRED: the credentials at the time of connect, not to be forged.
    """
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    pidfd = _pidfd_of(sock, pid)
    groups = _groups_of(pid)
    if pidfd < 0 or _has_ended(pidfd):
        groups = {}
    return Caller(Peer(pid, uid, gid, groups.get("", ""), groups.get("devices", "")), pidfd)


def _pidfd_of(sock: socket.socket, pid: int) -> int:
    with contextlib.suppress(OSError):
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size)
        return int(_DESCRIPTOR.unpack(raw)[0])
    with contextlib.suppress(OSError, AttributeError):  # before 6.5: by its number, at once
        return os.pidfd_open(pid)
    return -1


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _groups_of(pid: int) -> dict[str, str]:
    """The control groups of a process, by controller; version 2 has none of a name. Source: cgroups(7)."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def may_open(peer: Peer, device: str) -> bool:
    """Whether a client's control groups let it open a device file for reading and writing.

    Docker, Kubernetes and Slurm (``ConstrainDevices``) give a job some of a node's GPUs by a rule of the
    kernel on opening device files. That is a list in version 1 of control groups, a BPF program in version 2.
    Neither can be read from everywhere, and both can be tried: a process that has joined the client's groups
    opens the file or does not.

    Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, "Device controller".

    Raises:
        DevicePermissionError: it cannot be found out.
    """
    groups = _files_of(peer)
    if not groups:
        raise DevicePermissionError(
            f"cannot find out which GPUs {peer} may open: its control group is not visible from here",
            hint="the service needs the node's process numbers and /sys/fs/cgroup",
        )
    command = ["/bin/sh", "-c", _TRY, "sh", device, *map(str, groups)]
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program; what varies are its arguments
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DevicePermissionError(f"cannot find out which GPUs {peer} may open: {error}") from error
    if tried.returncode == _CANNOT_JOIN:
        group = tried.stdout.strip()
        raise DevicePermissionError(f"cannot find out which GPUs {peer} may open: {group} cannot be joined")
    return tried.returncode == _MAY


def _files_of(peer: Peer) -> list[Path]:
    """The files by which a process joins a peer's control groups, of either version, that are there."""
    places = [(_ROOT / "devices", peer.devices), (_ROOT, peer.cgroup), (_ROOT / "unified", peer.cgroup)]
    files = [root / path.lstrip("/") / "cgroup.procs" for root, path in places if path.startswith("/")]
    return [file for file in files if ".." not in file.parts and file.exists()]
