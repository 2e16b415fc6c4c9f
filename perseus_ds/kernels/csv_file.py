"""A kernel profile as a table: one row per class, pair and measurement, for people and other tools."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

from perseus_ds.device.clock_pair import AUTO, ClockPair
from perseus_ds.errors import ProfileError
from perseus_ds.files import number_in, read_table
from perseus_ds.files.table import Row
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.trace import KernelClass, shape_text
from perseus_ds.run_directory import write_whole

REQUIRED = ("kernel", "memory_mhz", "clock_mhz", "time_s", "energy_j")
COLUMNS = (
    "kernel",
    "shapes",
    "dtype",
    "note",
    "memory_mhz",
    "clock_mhz",
    "time_s",
    "energy_j",
    "time_se_s",
    "energy_se_j",
    "samples",
    "temperature_c",
    "measurement",
)
_MOST_BYTES = 64 << 20  # half a million rows
_COLDEST_C = -273.15
_FIRST, _SECOND = "first", "second"


def read_kernel_csv(path: Path) -> KernelProfile:
    """Read ``kernel,memory_mhz,clock_mhz,time_s,energy_j`` and what else of `COLUMNS` is there.

    A clock is a whole number of MHz, or ``auto``; ``shapes`` are like ``8x128 128x64``; ``measurement`` is
    ``first`` (the default) or ``second``.

    Raises:
        ProfileError: naming the file, the row (the header is row 1) and the column.
    """
    points: dict[str, dict[KernelClass, tuple[KernelPoint, ...]]] = {_FIRST: {}, _SECOND: {}}
    for where, row in read_table(path, REQUIRED, most_bytes=_MOST_BYTES):
        kernel, point = _kernel(row, where), _point(row, where)
        kept = points[_measurement(row, where)]
        if any(point.pair == other.pair for other in kept.get(kernel, ())):
            raise ProfileError(f"{where} measures {kernel} at {point.pair} again")
        kept[kernel] = (*kept.get(kernel, ()), point)
    if not points[_FIRST]:
        raise ProfileError(f"{path}: no row", hint="expected one row per kernel class and pair of clocks")
    try:
        return KernelProfile(points[_FIRST], points[_SECOND])
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error


def write_kernel_csv(profile: KernelProfile, path: Path) -> None:
    """Write all points; what is not a point (classes left out, fingerprint) stays in our own format."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for name, points in ((_FIRST, profile.points), (_SECOND, profile.second)):
        for kernel, measured in points.items():
            shapes = " ".join(map(shape_text, kernel.shapes))
            for point in measured:
                named = (kernel.name, shapes, kernel.dtype, kernel.note, *str(point.pair).split("/"))
                numbers = (point.time_s, point.energy_j, point.time_se_s, point.energy_se_j, point.samples)
                rows.writerow((*named, *numbers, point.temperature_c, name))
    write_whole(path, text.getvalue())


def _kernel(row: Row, where: str) -> KernelClass:
    name = (row["kernel"] or "").strip()
    if not name:
        raise ProfileError(f"{where}: kernel is empty")
    text = row.get("shapes") or ""
    try:
        shapes = tuple(tuple(int(size) for size in shape.split("x")) for shape in text.split())
    except ValueError as error:
        raise ProfileError(
            f"{where}: shapes is {text!r}", hint="expected shapes like 8x128 128x64"
        ) from error
    return KernelClass(name, shapes, row.get("dtype") or "", row.get("note") or "")


def _point(row: Row, where: str) -> KernelPoint:
    pair = ClockPair(_clock(row, "memory_mhz", where), _clock(row, "clock_mhz", where))
    numbers: defaultdict[str, float] = defaultdict(float)
    for column in ("time_se_s", "energy_se_j"):
        if row.get(column):
            numbers[column] = number_in(row, column, where, low=0.0)
    warm = number_in(row, "temperature_c", where, low=_COLDEST_C) if row.get("temperature_c") else None
    samples = number_in(row, "samples", where, low=1.0) if row.get("samples") else 1.0
    return KernelPoint(
        pair,
        number_in(row, "time_s", where),
        number_in(row, "energy_j", where),
        numbers["time_se_s"],
        numbers["energy_se_j"],
        int(samples),
        warm,
    )


def _measurement(row: Row, where: str) -> str:
    name = (row.get("measurement") or _FIRST).strip()
    if name not in {_FIRST, _SECOND}:
        raise ProfileError(f"{where}: measurement is {name!r}", hint=f"{_FIRST} or {_SECOND}")
    return name


def _clock(row: Row, column: str, where: str) -> int | None:
    if (row[column] or "").strip().lower() == AUTO:
        return None
    value = number_in(row, column, where)
    if not value.is_integer():
        raise ProfileError(
            f"{where}: {column} is {row[column]}", hint="expected a whole number of MHz, or auto"
        )
    return int(value)
