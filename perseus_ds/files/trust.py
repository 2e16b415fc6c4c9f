"""Files between users: who is believed, and how to write what only its owner could have written."""

from __future__ import annotations

import os
from pathlib import Path


def may_write(folder: Path) -> frozenset[int]:
    """Users whose files in a folder are believed: its owner and root.

    Raises:
        OSError: the folder is not there.
    """
    return frozenset({0, folder.stat().st_uid})


def write_trusted(path: Path, text: str, *, mode: int = 0o644, sync: bool = False) -> None:
    """Put a file in place in one step, writable by its owner alone whatever the umask.

    With ``sync`` it is on disk when this returns.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
