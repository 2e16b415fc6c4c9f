"""Which GPUs a client may open itself: its control group's device controller decides, so it is asked.

Docker, Kubernetes and Slurm (``ConstrainDevices``) give a job some of a node's GPUs by a rule of the kernel
on opening device files. That is a list in version 1 of control groups, a BPF program in version 2. Neither
can be read from everywhere, and both can be tried: a process that has joined the client's groups opens the
file or does not.

Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, "Device controller".
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from perseus_ds.device.guard.service.peer import Peer
from perseus_ds.errors import DevicePermissionError

_ROOT = Path("/sys/fs/cgroup")
_LIMIT_S = 5.0
_MAY, _CANNOT_JOIN = 0, 3
_TRY = f"""
device=$1; shift
for group; do echo $$ > "$group" || {{ echo "$group"; exit {_CANNOT_JOIN}; }}; done
[ -c "$device" ] && exec 3<> "$device"
"""


def may_open(peer: Peer, device: str) -> bool:
    """Whether a client's control groups let it open a device file for reading and writing.

    Raises:
        DevicePermissionError: it cannot be found out.
    """
    groups = _groups_of(peer)
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


def _groups_of(peer: Peer) -> list[Path]:
    """The files by which a process joins a peer's control groups, of either version, that are there."""
    places = [(_ROOT / "devices", peer.devices), (_ROOT, peer.cgroup), (_ROOT / "unified", peer.cgroup)]
    files = [root / path.lstrip("/") / "cgroup.procs" for root, path in places if path.startswith("/")]
    return [file for file in files if ".." not in file.parts and file.exists()]
