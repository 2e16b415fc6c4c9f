"""Records as files of our own: JSON with format and version, units in the key names, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import parse_json, read_bounded
from perseus_ds.run_directory.whole_file import write_json

VERSION = 1
MOST_BYTES = 64 * 2**20

Record = TypeVar("Record")


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
