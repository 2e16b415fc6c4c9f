"""Read a file that somebody else may have put there: an ordinary one, of a bounded size, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perseus_ds.errors import PerseusError


def read_bounded(path: Path, *, most_bytes: int, writers: frozenset[int] | None = None) -> bytes:
    """Read a whole file; what was opened is what is checked, and nothing that blocks is opened.

    With ``writers`` the file is believed only where nobody else could have written it: it is no link,
    belongs to one of these users, and not everybody may write to it. Without, links are followed: what the
    file says is then checked by who reads it.

    Raises:
        OSError: it cannot be opened or read.
        PerseusError: it is refused; the message lacks the path.
    """
    links = 0 if writers is None else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | links)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PerseusError("is not an ordinary file")
        if writers is not None:
            _check_writers(found, writers)
        content = _read(descriptor, most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise PerseusError(f"has {max(found.st_size, len(content))} bytes, {most_bytes} are allowed")
    return content


def check_folder(folder: Path, writers: frozenset[int]) -> None:
    """Refuse a folder in which others could move files.

    Raises:
        OSError: it is not there.
        PerseusError: it is not a folder, or others than ``writers`` may write to it.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PerseusError("is not a folder")
    _check_writers(found, writers)


def reason_of(error: OSError | PerseusError) -> str:
    """What a refusal or the system's error says, in one line that is to follow the path."""
    if isinstance(error, PerseusError):
        return error.message
    return f"cannot be read: {error.strerror or type(error).__name__}"


def _check_writers(found: os.stat_result, writers: frozenset[int]) -> None:
    if found.st_uid not in writers:
        raise PerseusError(f"belongs to user {found.st_uid}, who is not believed here")
    if found.st_mode & stat.S_IWOTH:
        raise PerseusError("can be written by everyone")


def _read(descriptor: int, most_bytes: int) -> bytes:
    """Read to the end of the file or of what is allowed: a file may grow after it was measured."""
    parts: list[bytes] = []
    left = most_bytes
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
