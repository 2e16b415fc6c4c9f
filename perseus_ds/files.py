"""Read and write files that others may have written: bounded reads, strict JSON, tables, digests.

Imports the standard library alone, since the privileged guard uses it.
"""

from __future__ import annotations

import csv
import errno
import grp
import hashlib
import io
import json
import math
import os
import pwd
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeGuard

from perseus_ds.errors import PerseusError, ProfileError

# Trust: the guard believes a file that nobody but its reader and root could have written.

_LINKED = "has another name as well (a hard link)"


def check_writers(found: os.stat_result, writers: frozenset[int]) -> None:
    """Refuse a file or folder that others than ``writers`` could have changed; a user's own group may."""
    if found.st_uid not in writers:
        raise PerseusError(f"belongs to user {found.st_uid}, who is not believed here")
    if found.st_mode & stat.S_IWOTH:
        raise PerseusError("can be written by everyone")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise PerseusError(_LINKED)
    if found.st_mode & stat.S_IWGRP and not _private(found.st_gid, found.st_uid):
        raise PerseusError(f"can be written by group {found.st_gid}")


def write_atomically(path: Path, text: str | bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Put a file in place in one step, writable by its owner alone whatever the umask.

    No link is followed and nothing that was put there beforehand is written to. With ``sync`` it is on disk
    when this returns. An `OSError`: it cannot be written, and nothing of it is left.
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
def open_to_append(path: Path) -> Iterator[TextIO]:
    """Open a file to append to; no link is followed, and a pipe or a device is refused and not waited for.

    A file with a second name is refused too: what is appended would be appended to that.
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
    """Return whether a group is its user's own: of the same number or name, and with no other member."""
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return group == user
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    return (group == user or found.gr_name == name) and not set(found.gr_mem) - {name}


_STALE_TRIES = 3


def read_bounded(path: Path, *, most_bytes: int, writers: frozenset[int] | None = None) -> bytes:
    """Read a whole file; what was opened is what is checked, and nothing that blocks is opened.

    With ``writers`` it must be no link, and written by none but these users (`check_writers`). A file that
    another host replaced meanwhile is read again (ESTALE of network file systems).

    Raises:
        OSError: it cannot be opened or read.
        PerseusError: it is refused; the message lacks the path.
    """
    for _ in range(_STALE_TRIES):
        try:
            return _read_once(path, most_bytes=most_bytes, writers=writers)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_once(path, most_bytes=most_bytes, writers=writers)


def _read_once(path: Path, *, most_bytes: int, writers: frozenset[int] | None) -> bytes:
    """Read a file as far as is allowed; a pipe, a device, a folder or a socket is refused, not waited for."""
    links = 0 if writers is None else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | links)
    parts: list[bytes] = []
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PerseusError("is not an ordinary file")
        if writers is not None:
            check_writers(found, writers)
        left = most_bytes + 1 if found.st_size <= most_bytes else 0
        while left and (part := os.read(descriptor, min(left, 1 << 20))):  # it may have grown since
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    content = b"".join(parts)
    if max(found.st_size, len(content)) > most_bytes:
        raise PerseusError(f"has {max(found.st_size, len(content))} bytes, {most_bytes} are allowed")
    return content


def check_folder(folder: Path, writers: frozenset[int]) -> None:
    """Refuse a folder in which others than ``writers`` could move files; an `OSError`: it is not there."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PerseusError("is not a folder")
    check_writers(found, writers)


def reason_of(error: OSError | PerseusError) -> str:
    """Return what a refusal or the system's error states, in one line that is to follow the path."""
    if isinstance(error, PerseusError):
        return error.message
    return f"cannot be read: {error.strerror or type(error).__name__}"


# JSON of others: bounded in bytes and depth, finite in its numbers, each key once.

_MOST_DIGITS = 18  # of a whole number: it fits into 64 bits, and into a double without an error
_LONGEST_REAL = 64


def read_json(path: Path, *, most_bytes: int, writers: frozenset[int] | None = None) -> object:
    """Read a JSON file; see `read_bounded` and `parse_json`."""
    return parse_json(read_bounded(path, most_bytes=most_bytes, writers=writers))


def parse_json(text: bytes | str) -> object:
    """Parse strict JSON; a `PerseusError` that lacks the path: it is none, or none that we wrote."""
    data = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
    try:
        content: object = json.loads(
            data.decode("utf-8-sig"),
            parse_float=_real,
            parse_int=_whole,
            parse_constant=_not_a_number,
            object_pairs_hook=_each_once,
        )
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PerseusError("has half of a character, which nobody can print") from None
    except RecursionError:
        raise PerseusError("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise PerseusError(f"is not text: byte {error.start} is no UTF-8") from error
    except json.JSONDecodeError as error:
        raise PerseusError(f"is not JSON or is cut short: {error}") from error
    return content


def _real(text: str) -> float:
    value = float(text) if len(text) <= _LONGEST_REAL else math.inf
    if not math.isfinite(value):
        raise PerseusError(f"has the number {text:.40}, which is too large or too long")
    return value


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise PerseusError(f"has a whole number of {len(text)} digits")
    return int(text)


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value that was read is a whole number within bounds; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _not_a_number(text: str) -> float:
    raise PerseusError(f"has {text} where a number should be")


def _each_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise PerseusError(f"has the key {twice!r:.40} twice")
    return content


# CSV files of measurements: one reader that names the separator, the column and the row at fault.

Row = Mapping[str, str | None]

_POINT = "numbers have a decimal point, and no separator of thousands"
_PLAIN = "save it as plain text in UTF-8"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_table(path: Path, required: Sequence[str], *, most_bytes: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a CSV file, each with its place ("FILE: row 2") for messages; the header is row 1.

    Names of columns are compared without capitals and blanks. Other columns than ``required`` may be there.
    A `ProfileError`: it cannot be read, is no CSV file, lacks a column, or a row is longer than the header.
    """
    try:
        text = read_bounded(path, most_bytes=most_bytes).decode("utf-8-sig")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path} is not a CSV file: {error}", hint=_PLAIN) from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint) from error
    if "\x00" in text[:1024]:
        raise ProfileError(f"{path} is not a CSV file: it has bytes that are no text", hint=_PLAIN)
    if not text.strip():
        raise ProfileError(f"{path} is empty", hint=f"expected {','.join(required)}")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        rows.fieldnames = _checked_columns(rows.fieldnames or (), required, path)
        for row in rows:
            where = f"{path}: row {rows.line_num}"
            if None in row:
                raise ProfileError(f"{where} has more cells than the header", hint=_POINT)
            yield where, row
    except csv.Error as error:
        raise ProfileError(f"{path} is not a CSV file: {error}") from error


def _checked_columns(header: Sequence[str], required: Sequence[str], path: Path) -> list[str]:
    columns = [name.strip().lower() for name in header]
    if missing := [name for name in required if name not in columns]:
        expected = f"expected {','.join(required)}"
        for separator, name in _SEPARATORS.items():
            if any(separator in column for column in columns):
                raise ProfileError(f"{path}: columns are separated by {name}", hint=f"{expected} with commas")
        raise ProfileError(
            f"{path}: no column {', '.join(missing)} among {','.join(columns):.200}", hint=expected
        )
    if twice := [name for name in required if columns.count(name) > 1]:
        raise ProfileError(f"{path} has the column {twice[0]} twice", hint="keep one of them")
    return columns


MOST = 1e12  # seconds, joules, watts: more was not measured, and its sums are not finite

# The digest in a file of ours: what nothing else in it could contradict is not changed unseen.

KEY = "sha256"


def digest_of(content: Mapping[str, object]) -> str:
    """Return the digest of everything else in the file, however it is laid out."""
    rest = {key: value for key, value in content.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_digest(content: Mapping[str, object]) -> None:
    """Refuse what was changed since it was written, or has no digest."""
    if KEY not in content:
        raise PerseusError(f"has no {KEY}")
    if content[KEY] != digest_of(content):
        raise PerseusError(f"its content is not what its {KEY} was made of: it was changed since")
