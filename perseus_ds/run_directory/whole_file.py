"""Files that a reader finds whole, the old one or the new one, and records in such files.

A record is JSON with format and version, units in the key names, and is read strictly.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TypeVar

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import may_write, parse_json, read_bounded, write_trusted

VERSION = 1
MOST_BYTES = 64 * 2**20
Record = TypeVar("Record")


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


def write_record(path: Path, name: str, kind: type[Record], record: Record) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    import pydantic  # noqa: PLC0415  # a tenth of a second: for those who write or read a record

    content = pydantic.TypeAdapter(kind).dump_python(record, mode="json")
    write_json(path, {"format": name, "version": VERSION} | content)


def read_record(path: Path, name: str, kind: type[Record], *, remedy: str) -> Record:
    """Read what ``write_record`` wrote.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    import pydantic  # noqa: PLC0415  # as above

    try:
        text = read_bounded(path, most_bytes=MOST_BYTES)
        content = parse_json(text)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint or remedy) from error
    if not isinstance(content, dict) or content.get("format") != name:
        raise ProfileError(f"{path} is not a {name}", hint=f'expected "format": "{name}"')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a {name} of version {content.get('version')}", hint=f"we read version {VERSION}"
        )
    try:
        return pydantic.TypeAdapter(kind).validate_json(text, strict=True)
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{path}: {key}: {first['msg']}", hint=remedy) from error
