"""Files that a reader finds whole: the old one or the new one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from perseus_ds.files import may_write, write_trusted


def write_whole(path: Path, text: str | bytes) -> None:
    """Replace ``path`` by a file with ``text`` in one step; a link that others planted is not followed.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    make_folder(path.parent)
    write_trusted(path, text)


def write_json(path: Path, content: object) -> None:
    """Replace ``path`` by ``content`` as JSON that a person can read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists.

    Raises:
        OSError: it cannot be made, or is a link that neither we nor the owner of its own folder made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink() and folder.lstat().st_uid not in may_write(folder.parent) | {os.geteuid()}:
        raise OSError(errno.ELOOP, "is a link that somebody else made", str(folder))
