"""Which process holds an abstract socket's name: for a line that names it, never to believe it.

Only root sees the descriptors of everybody; a socket may be passed on, so who has it is no proof of who
bound it.

Source: proc_net(5), /proc/net/unix; proc_pid_fd(5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def process_with(name: str) -> str | None:
    """Name the user and the process that have the socket of a name; ``None``: not to be seen from here."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(name.replace("\0", "@"))}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and not sockets.isdisjoint(_open_files(entry)):
            return f"user {_user_of(entry)}, process {entry.name}"
    return None


def _inodes(shown: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split(maxsplit=7)
            if words[7:] == [shown]:
                yield words[6]


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())


def _user_of(process: Path) -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = (process / "status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("Uid:"))
    return "unknown"
