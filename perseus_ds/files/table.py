"""CSV files of measurements: one reader that names the separator, the column and the row at fault."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files.read import read_bounded

Row = Mapping[str, str | None]

_POINT = "numbers have a decimal point, and no separator of thousands"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_table(path: Path, required: Sequence[str], *, most_bytes: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a CSV file, each with its place ("FILE: row 2") for messages; the header is row 1.

    Names of columns are compared without capitals and blanks. Other columns than ``required`` may be there.

    Raises:
        ProfileError: the file cannot be read, is no CSV file, is empty, or lacks a column; or a row is longer
            than the header.
    """
    try:
        text = read_bounded(path, most_bytes=most_bytes).decode("utf-8-sig")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path} is not a CSV file: {error}", hint="save it in UTF-8") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint) from error
    if "\x00" in text[:1024]:
        raise ProfileError(
            f"{path} is not a CSV file: it has bytes that are no text", hint="save it in UTF-8"
        )
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


def number_in(row: Row, column: str, where: str, *, low: float | None = None) -> float:
    """Return a finite number above 0, or one of ``low`` or more.

    Raises:
        ProfileError: the cell holds something else.
    """
    text = row[column]
    wanted = "above 0" if low is None else f"of {low:g} or more"
    try:
        value = float(text or "")
    except ValueError as error:
        hint = _POINT if "," in (text or "") else f"expected a number {wanted}"
        raise ProfileError(f"{where}: {column} is {text!r:.80}", hint=hint) from error
    if not math.isfinite(value) or not (value > 0 if low is None else value >= low):
        raise ProfileError(f"{where}: {column} is {text:.80}", hint=f"expected a finite number {wanted}")
    return value
