"""Files that are believed by who could have written them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from perseus_ds.errors import PerseusError

MOST_BYTES = 4096


def may_write(folder: Path) -> frozenset[int]:
    """Users whose files in a run directory are believed: its owner and root.

    Raises:
        OSError: the folder is not there.
    """
    return frozenset({0, folder.stat().st_uid})


def check_folder(folder: Path, writers: frozenset[int]) -> None:
    """Refuse a folder in which others could move files.

    Raises:
        OSError: it is not there.
        PerseusError: it is not a folder, or others than ``writers`` may write to it.
    """
    _check(os.lstat(folder), writers, stat.S_ISDIR, "a folder")


def read_trusted(path: Path, writers: frozenset[int]) -> bytes:
    """Read a small file; what was opened is what is checked.

    Raises:
        OSError: it cannot be read.
        PerseusError: it is no ordinary file, too large, or others than ``writers`` may have written it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _check(found, writers, stat.S_ISREG, "an ordinary file")
        if found.st_size > MOST_BYTES:
            raise PerseusError(f"has {found.st_size} bytes, {MOST_BYTES} are allowed")
        return os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)


def write_trusted(path: Path, text: str) -> None:
    """Put a file in place in one step, writable by its owner alone whatever the umask.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def _check(found: os.stat_result, writers: frozenset[int], is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(found.st_mode):
        raise PerseusError(f"is not {kind}")
    if found.st_uid not in writers:
        raise PerseusError(f"belongs to user {found.st_uid}, who does not own the run directory")
    if found.st_mode & stat.S_IWOTH:
        raise PerseusError("can be written by everyone")
