"""The CSV that Zeus and the Perseus artifact use: ``stage,instruction,frequency,time,energy``."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import read_bounded
from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.run_directory import write_whole
from perseus_ds.schedule import Kind

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_MOST_BYTES = 8 << 20  # 200 000 rows
_KINDS = {
    "forward": Kind.FORWARD,
    "backward": Kind.BACKWARD,
    "backward_input": Kind.BACKWARD_INPUT,  # ours: Zeus does not split backwards
    "backward_weight": Kind.BACKWARD_WEIGHT,
}


def read_csv(path: Path) -> Profile:
    """Read a profile in MHz, seconds and joules.

    Raises:
        ProfileError: naming the file, the row (the header is row 1) and the column.
    """
    text = csv_text(path, most_bytes=_MOST_BYTES)
    try:
        points = _points(csv.DictReader(io.StringIO(text, newline="")), path)
    except csv.Error as error:
        raise ProfileError(f"{path} is not a CSV file: {error}") from error
    if not points:
        raise ProfileError(f"{path}: no row", hint="expected one row per stage, instruction and frequency")
    try:
        return Profile({computation: tuple(by_clock.values()) for computation, by_clock in points.items()})
    except ProfileError as error:
        raise ProfileError(f"{path}: {error.message}", hint=error.hint) from error


def csv_text(path: Path, *, most_bytes: int) -> str:
    """Read a CSV file of measurements, ours or the user's, up to a size.

    Raises:
        ProfileError: naming the file and what is wrong with it.
    """
    try:
        return read_bounded(path, most_bytes=most_bytes).decode("utf-8-sig")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path} is not a CSV file: {error}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}") from error


def _points(rows: csv.DictReader[str], path: Path) -> Mapping[Computation, Mapping[int, Point]]:
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ProfileError(f"{path}: no column {', '.join(missing)}", hint=f"expected {','.join(COLUMNS)}")
    points: dict[Computation, dict[int, Point]] = defaultdict(dict)
    for row in rows:
        where = f"{path}: row {rows.line_num}"
        computation, point = _point(row, where)
        if point.clock_mhz in points[computation]:
            raise ProfileError(f"{where} measures the same stage, instruction and frequency again")
        points[computation][point.clock_mhz] = point
    return points


def write_csv(profile: Profile, path: Path) -> None:
    """Write the points that a Zeus tool can read; spread and fingerprint stay in our own format.

    Raises:
        ProfileError: work of a kind that has no name there.
    """
    names = {kind: name for name, kind in _KINDS.items()}
    for stage, kind in profile.points:
        if kind not in names:
            raise ProfileError(f"{path}: stage {stage} has {kind.words}, for which the CSV has no name")
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for stage, kind in sorted(profile.points, key=lambda key: (key[0], list(names).index(key[1]))):
        for point in profile.of(stage, kind):
            rows.writerow([stage, names[kind], point.clock_mhz, point.time_s, point.energy_j])
    write_whole(path, text.getvalue())


def _point(row: Mapping[str, str | None], where: str) -> tuple[Computation, Point]:
    name = (row["instruction"] or "").strip().lower()
    if name not in _KINDS:
        raise ProfileError(f"{where}: instruction is {row['instruction']!r}", hint=f"{', '.join(_KINDS)}")
    if None in row:
        raise ProfileError(f"{where} has more cells than the header")
    stage = _number(row, "stage", where)
    if stage < 0 or not stage.is_integer():
        raise ProfileError(f"{where}: stage is {row['stage']!r}", hint="expected 0, 1, 2, ...")
    clock_mhz = _positive(row, "frequency", where)
    if not clock_mhz.is_integer():
        raise ProfileError(f"{where}: frequency is {row['frequency']}", hint="expected a whole number of MHz")
    point = Point(
        clock_mhz=int(clock_mhz),
        time_s=_positive(row, "time", where),
        energy_j=_positive(row, "energy", where),
    )
    return (int(stage), _KINDS[name]), point


def _positive(row: Mapping[str, str | None], column: str, where: str) -> float:
    value = _number(row, column, where)
    if value <= 0:
        raise ProfileError(f"{where}: {column} is {row[column]}", hint="expected a number above 0")
    return value


def _number(row: Mapping[str, str | None], column: str, where: str) -> float:
    text = row[column]
    try:
        value = float(text or "")
    except ValueError as error:
        raise ProfileError(f"{where}: {column} is {text!r}", hint="expected a number") from error
    if not math.isfinite(value):
        raise ProfileError(f"{where}: {column} is {text}", hint="expected a finite number")
    return value
