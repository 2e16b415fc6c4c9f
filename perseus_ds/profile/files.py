"""Profile files: JSON of our own with units in the key names, and the CSV that Zeus uses."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import ProfileError
from perseus_ds.files import KEY, Row, digest_of, read_table
from perseus_ds.profile.loads import LoadFit, NotNegative
from perseus_ds.profile.records import MOST_STAGES, Computation, Mhz, Point, Positive, Profile
from perseus_ds.profile.temperature import MOST_LEAKAGE
from perseus_ds.run_directory.paths import VERSION, RecordFormat, write_whole
from perseus_ds.schedule import Kind

FORMAT = "perseus-profile"
_MOST_LATENCY_S = 1e6
_TABLES = frozenset({".csv", ".tsv", ".txt"})
Stage = Annotated[int, Field(ge=0, lt=MOST_STAGES)]
Leakage = Annotated[float, Field(ge=0.0, le=MOST_LEAKAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PointRow(Point):
    stage: Stage
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadRow(LoadFit):
    stage: Stage
    kind: Kind


@dataclass(frozen=True, slots=True)
class _FixedRow:
    stage: Stage
    kind: Kind
    time_s: NotNegative


@dataclass(frozen=True, slots=True)
class _ProfileFile:
    fingerprint: Mapping[str, str]
    blocking_power_w: NotNegative | None
    blocking_w: Mapping[Mhz, NotNegative]
    fixed_s: Sequence[_FixedRow]
    points: Sequence[_PointRow]
    window_s: NotNegative | None = None
    size_variation: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    leakage: Leakage = 0.0
    leakage_se: Leakage = 0.0
    calibration: Calibration | None = None
    loads: Sequence[_LoadRow] = ()
    grid_mhz: Sequence[Mhz] = ()

    def profile(self) -> Profile:
        """Put the rows of each computation together."""
        points: dict[Computation, list[Point]] = defaultdict(list)
        for row in self.points:
            points[row.stage, row.kind].append(Point(*astuple(row)[: len(fields(Point))]))
        loads = {
            (row.stage, row.kind): LoadFit(*(getattr(row, own.name) for own in fields(LoadFit)))
            for row in self.loads
        }
        fixed_s = {(row.stage, row.kind): row.time_s for row in self.fixed_s}
        for name, rows, known in (("fixed_s", self.fixed_s, fixed_s), ("loads", self.loads, loads)):
            if len(known) < len(rows):
                raise ProfileError(f"{name} names a computation twice")
        if self.calibration is not None:
            for name, value in asdict(self.calibration).items():
                if isinstance(value, int | float) and not 0 <= value <= _MOST_LATENCY_S:
                    raise ProfileError(f"calibration.{name} is {value}", hint="profile the job again")
        return Profile(
            points={key: tuple(own) for key, own in points.items()},
            blocking_power_w=self.blocking_power_w,
            blocking_w=self.blocking_w,
            fixed_s=fixed_s,
            fingerprint=self.fingerprint,
            window_s=self.window_s,
            calibration=self.calibration,
            size_variation=self.size_variation,
            leakage=self.leakage,
            leakage_se=self.leakage_se,
            loads=loads,
            grid_mhz=tuple(self.grid_mhz),
        )


@contextmanager
def names_profile(path: Path) -> Iterator[None]:
    """Put a profile's path before what is wrong with it, where that was found after it had been read."""
    try:
        yield
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error


def read_profile(path: str | Path) -> Profile:
    """Read a profile: ours, or the CSV of Zeus when the name ends in ``.csv`` (or ``.tsv``, ``.txt``).

    A digest that does not fit is refused. A file without one is taken: older profiles and those of other
    programs have none, and a user who changes one by hand removes it.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    path = Path(path)
    if not _TABLES.isdisjoint(suffix.lower() for suffix in path.suffixes):
        return read_csv(path)
    content = RecordFormat(FORMAT, _ProfileFile, "profile the job again").read(path)
    with names_profile(path):
        return content.profile()


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_whole(Path(path), profile_json(profile) + "\n")


def profile_json(profile: Profile) -> str:
    """Return all of a profile as its file holds it."""

    def row(key: Computation, values: Mapping[str, object]) -> dict[str, object]:
        read = {name: value for name, value in values.items() if (name, value) != ("temperature_c", None)}
        return {"stage": key[0], "kind": key[1].value, **read}

    content = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": dict(profile.fingerprint),
        "window_s": profile.window_s,
        "size_variation": profile.size_variation,
        "leakage": profile.leakage,
        "leakage_se": profile.leakage_se,
        "blocking_power_w": profile.blocking_power_w,
        "blocking_w": {str(clock): power for clock, power in profile.blocking_w.items()},
        "fixed_s": [row(key, {"time_s": time_s}) for key, time_s in profile.fixed_s.items()],
        "calibration": None if profile.calibration is None else asdict(profile.calibration),
        "points": [row(key, asdict(point)) for key, points in profile.points.items() for point in points],
    }
    if profile.loads:
        content["loads"] = [row(key, asdict(fit)) for key, fit in profile.loads.items()]
    if profile.grid_mhz:
        content["grid_mhz"] = list(profile.grid_mhz)
    return json.dumps(content | {KEY: digest_of(content)}, indent=1)


# The CSV that Zeus and the Perseus artifact use: ``stage,instruction,frequency,time,energy``.

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_MOST_CSV_BYTES = 8 << 20  # 200 000 rows
_LEAST_W, _MOST_W = 5.0, 3e3  # of one GPU: what is outside is in another unit
_KIND_NAMES = {
    "forward": Kind.FORWARD,
    "backward": Kind.BACKWARD,
    "backward_input": Kind.BACKWARD_INPUT,  # this and the next are ours: Zeus neither splits nor combines
    "backward_weight": Kind.BACKWARD_WEIGHT,
    "forward_backward": Kind.FORWARD_BACKWARD,
}


@dataclass(frozen=True, slots=True)
class _CsvRow:
    stage: Stage
    frequency: Annotated[int, Field(ge=10, le=20_000)]  # GPUs run from 100 to 4 000 MHz
    time: Positive
    energy: Positive


def read_csv(path: Path) -> Profile:
    """Read a profile in MHz, seconds and joules; numbers that must be in another unit are refused.

    Raises:
        ProfileError: naming the file, the row (the header is row 1) and the column.
    """
    points: dict[Computation, dict[int, Point]] = defaultdict(dict)
    reader = TypeAdapter(_CsvRow)
    for where, row in read_table(path, COLUMNS, most_bytes=_MOST_CSV_BYTES):
        computation, point = _point(reader, row, where)
        if point.clock_mhz in points[computation]:
            raise ProfileError(f"{where} measures the same stage, instruction and frequency again")
        points[computation][point.clock_mhz] = point
    if not points:
        raise ProfileError(f"{path}: no row", hint="expected one row per stage, instruction and frequency")
    with names_profile(path):
        return Profile({computation: tuple(by_clock.values()) for computation, by_clock in points.items()})


def write_csv(profile: Profile, path: Path) -> None:
    """Write the points that a Zeus tool can read; spread and fingerprint stay in our own format."""
    write_whole(path, profile_csv(profile))


def profile_csv(profile: Profile) -> str:
    """Return the points as a CSV of Zeus.

    Raises:
        ProfileError: work of a kind that has no name there.
    """
    names = {kind: name for name, kind in _KIND_NAMES.items()}
    for stage, kind in profile.points:
        if kind not in names:
            raise ProfileError(f"stage {stage} has {kind.words}, for which the CSV has no name")
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for stage, kind in sorted(profile.points, key=lambda key: (key[0], list(names).index(key[1]))):
        for point in profile.of(stage, kind):
            rows.writerow([stage, names[kind], point.clock_mhz, point.time_s, point.energy_j])
    return text.getvalue()


def _point(reader: TypeAdapter[_CsvRow], row: Row, where: str) -> tuple[Computation, Point]:
    name = (row["instruction"] or "").strip().lower()
    if name not in _KIND_NAMES:
        raise ProfileError(
            f"{where}: instruction is {row['instruction']!r:.80}", hint=f"{', '.join(_KIND_NAMES)}"
        )
    try:
        found = reader.validate_strings({column: (row[column] or "").strip() for column in COLUMNS})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ProfileError(
            f"{where}: {first['loc'][0]} is {first['input']!r:.80}: {first['msg']:.200}",
            hint="expected MHz, seconds and joules with a decimal point and no separator of thousands",
        ) from error
    power_w = found.energy / found.time
    if not _LEAST_W <= power_w <= _MOST_W:
        raise ProfileError(
            f"{where}: {found.energy:.4g} J in {found.time:.4g} s are {power_w:.3g} W for one GPU",
            hint=f"time in seconds and energy in joules come to {_LEAST_W:g} to {_MOST_W:g} W",
        )
    return (found.stage, _KIND_NAMES[name]), Point(found.frequency, found.time, found.energy)
