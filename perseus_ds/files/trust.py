"""Files between users: who is believed, and how to write what only its owner could have written.

A file is believed where nobody but its reader, the owner of its folder and root could have written it. A
group that may write counts as others, unless it is its owner's private one: a umask of 002 gives every file
to that group. Folders that a whole project may write to are common. What lies in them is judged file by file,
and the folder itself is worth a warning (`who_else`), not an end.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

_LINKED = "has another name as well (a hard link)"


def may_write(folder: Path) -> frozenset[int]:
    """Users whose files in a folder are believed: its owner and root.

    Raises:
        OSError: the folder is not there.
    """
    return frozenset({0, folder.stat().st_uid})


def why_not_believed(found: os.stat_result, writers: frozenset[int], *, shared: bool = False) -> str | None:
    """Return who else could have written a file or moved files in a folder; None where nobody could.

    With ``shared`` a group that may write is believed.
    """
    if found.st_uid not in writers:
        return f"belongs to user {found.st_uid}, who is not believed here"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everyone"
    if not shared and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        return _LINKED
    if found.st_mode & stat.S_IWGRP and not shared and not _private(found.st_gid, found.st_uid):
        return f"can be written by group {found.st_gid}"
    return None


def who_else(path: Path) -> str | None:
    """Return who else may write to a file or folder that is there; None where nobody may."""
    try:
        found = path.stat()
    except OSError:
        return None
    return why_not_believed(found, frozenset({0, os.geteuid(), found.st_uid}))


def write_trusted(path: Path, text: str | bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Put a file in place in one step, writable by its owner alone whatever the umask.

    No link is followed and nothing that was put there beforehand is written to. With ``sync`` it is on disk
    when this returns.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    content = text.encode() if isinstance(text, str) else text
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{os.getpid()}.{secrets.token_hex(4)}")  # noqa: PTH118  # half the time
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)  # noqa: PTH105
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(partial)  # noqa: PTH108
        raise


@contextmanager
def appended(path: Path) -> Iterator[TextIO]:
    """Open a file to append to; no link is followed, and a pipe or a device is refused and not waited for.

    A file with a second name is refused too: what is appended would be appended to that.

    Raises:
        OSError: it cannot be opened, is no ordinary file, or has another name as well.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not an ordinary file", str(path))
        if found.st_nlink > 1:
            raise OSError(errno.EMLINK, _LINKED, str(path))
        yield file


def _private(group: int, user: int) -> bool:
    """Whether a group is its user's own: of the same number or name, and with no other member."""
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return group == user
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    return (group == user or found.gr_name == name) and not set(found.gr_mem) - {name}
