"""Read a file that somebody else may have put there: an ordinary one, of a bounded size, or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files.trust import why_not_believed

_STALE_TRIES = 3
_NOT_PLAIN = (
    (b"\x1f\x8b", "is compressed by gzip", "unpack it with gunzip"),
    (b"PK\x03\x04", "is a ZIP archive or a workbook", "unpack it, or export a CSV file"),
    (b"\xfd7zXZ\x00", "is compressed by xz", "unpack it with unxz"),
    (b"BZh", "is compressed by bzip2", "unpack it with bunzip2"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", "unpack it with unzstd"),
    (b"\xff\xfe", "is text in UTF-16", "save it in UTF-8"),
    (b"\xfe\xff", "is text in UTF-16", "save it in UTF-8"),
)


def read_bounded(
    path: Path, *, most_bytes: int, writers: frozenset[int] | None = None, shared: bool = False
) -> bytes:
    """Read a whole file; what was opened is what is checked, and nothing that blocks is opened.

    With ``writers`` the file is believed only where nobody else could have written it. It is no link, belongs
    to one of these users, and nobody else may write to it. With ``shared`` as well a link is followed, since
    what it leads to is checked alike, and a group may write: project directories are shared. Without
    ``writers``, what the file states is checked by who reads it. Every file of ours is plain text. One that
    is compressed or in UTF-16 is refused as such.

    A file that another host replaced meanwhile is read again (ESTALE of network file systems).

    Raises:
        OSError: it cannot be opened or read.
        PerseusError: it is refused; the message lacks the path.
    """
    for _ in range(_STALE_TRIES):
        try:
            return _read_once(path, most_bytes=most_bytes, writers=writers, shared=shared)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_once(path, most_bytes=most_bytes, writers=writers, shared=shared)


def _read_once(path: Path, *, most_bytes: int, writers: frozenset[int] | None, shared: bool) -> bytes:
    descriptor = open_ordinary(path, follow=shared or writers is None)
    try:
        found = os.fstat(descriptor)
        if writers is not None:
            _check_writers(found, writers, shared=shared)
        content = _read(descriptor, most_bytes + 1) if found.st_size <= most_bytes else b""
    finally:
        os.close(descriptor)
    if max(found.st_size, len(content)) > most_bytes:
        raise PerseusError(f"has {max(found.st_size, len(content))} bytes, {most_bytes} are allowed")
    for start, what, remedy in _NOT_PLAIN:
        if content.startswith(start):
            raise PerseusError(what, hint=remedy)
    return content


def open_ordinary(path: Path, *, follow: bool = True) -> int:
    """Open a file for reading; a pipe, a device, a folder or a socket is refused and not waited for.

    Raises:
        OSError: it cannot be opened.
        PerseusError: it is no ordinary file; the message lacks the path.
    """
    links = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | links)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PerseusError("is not an ordinary file")
    return descriptor


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
    """What a refusal or the system's error states, in one line that is to follow the path."""
    if isinstance(error, PerseusError):
        return error.message
    return f"cannot be read: {error.strerror or type(error).__name__}"


def _check_writers(found: os.stat_result, writers: frozenset[int], *, shared: bool = False) -> None:
    if (why_not := why_not_believed(found, writers, shared=shared)) is not None:
        raise PerseusError(why_not)


def _read(descriptor: int, most_bytes: int) -> bytes:
    """Read to the end of the file or of what is allowed: a file may grow after it was measured."""
    parts: list[bytes] = []
    left = most_bytes
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
