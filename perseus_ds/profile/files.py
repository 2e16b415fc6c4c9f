"""Our own profile file: JSON with units in the key names, written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import (
    KEY,
    MOST,
    MOST_COUNT,
    Content,
    Row,
    check_digest,
    digest_of,
    line,
    listed,
    mapping,
    number_in,
    read_json,
    read_table,
    real,
    real_or_none,
    record,
    rows,
    texts,
    whole,
    within,
)
from perseus_ds.profile.loads import LoadFit
from perseus_ds.profile.records import MOST_STAGES, Computation, Point, Profile
from perseus_ds.profile.temperature import MOST_LEAKAGE
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.schedule import Kind, Load
from perseus_ds.schedule.instruction import MOST_LOAD

# The CSV that Zeus and the Perseus artifact use: ``stage,instruction,frequency,time,energy``.

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_MOST_CSV_BYTES = 8 << 20  # 200 000 rows
_LEAST_MHZ, _MOST_GPU_MHZ = 10.0, 2e4  # GPUs run from 100 to 4 000 MHz: what is outside is in another unit
_LEAST_W, _MOST_W = 5.0, 3e3  # of one GPU
_LIKELY_W = 30.0, 1500.0
_LIKELY_S = 2e-4, 50.0  # one forward or backward of one microbatch
_KIND_NAMES = {
    "forward": Kind.FORWARD,
    "backward": Kind.BACKWARD,
    "backward_input": Kind.BACKWARD_INPUT,  # ours: Zeus does not split backwards
    "backward_weight": Kind.BACKWARD_WEIGHT,
}


def read_csv(path: Path) -> Profile:
    """Read a profile in MHz, seconds and joules; numbers that must be in another unit are refused.

    Raises:
        ProfileError: naming the file, the row (the header is row 1) and the column.
    """
    points: dict[Computation, dict[int, Point]] = defaultdict(dict)
    for where, row in read_table(path, COLUMNS, most_bytes=_MOST_CSV_BYTES):
        computation, point = _point(row, where)
        if point.clock_mhz in points[computation]:
            raise ProfileError(f"{where} measures the same stage, instruction and frequency again")
        points[computation][point.clock_mhz] = point
    if not points:
        raise ProfileError(f"{path}: no row", hint="expected one row per stage, instruction and frequency")
    try:
        return Profile({computation: tuple(by_clock.values()) for computation, by_clock in points.items()})
    except ProfileError as error:
        raise ProfileError(f"{path}: {error.message}", hint=error.hint) from error


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


def _point(row: Row, where: str) -> tuple[Computation, Point]:
    name = (row["instruction"] or "").strip().lower()
    if name not in _KIND_NAMES:
        raise ProfileError(
            f"{where}: instruction is {row['instruction']!r}", hint=f"{', '.join(_KIND_NAMES)}"
        )
    stage = number_in(row, "stage", where, low=0.0)
    if not stage.is_integer():
        raise ProfileError(f"{where}: stage is {row['stage']!r}", hint="expected 0, 1, 2, ...")
    time_s, energy_j = number_in(row, "time", where), number_in(row, "energy", where)
    point = Point(clock_mhz=_csv_clock_mhz(row, where), time_s=time_s, energy_j=energy_j)
    check_power(time_s, energy_j, where)
    return (int(stage), _KIND_NAMES[name]), point


def _csv_clock_mhz(row: Row, where: str) -> int:
    clock = number_in(row, "frequency", where)
    limits = {"GHz": _LEAST_MHZ, "MHz": _MOST_GPU_MHZ, "kHz": 1e3 * _MOST_GPU_MHZ, "Hz": math.inf}
    unit = next(unit for unit, limit in limits.items() if clock < limit)
    if unit != "MHz":
        raise ProfileError(f"{where}: frequency is {row['frequency']}, as in {unit}", hint="expected MHz")
    if not clock.is_integer():
        raise ProfileError(f"{where}: frequency is {row['frequency']}", hint="expected a whole number of MHz")
    return int(clock)


def check_power(time_s: float, energy_j: float, where: str) -> None:
    """Refuse a power that no GPU has, and name the unit that would explain it.

    Raises:
        ProfileError: below 5 W or above 3 kW.
    """
    power_w = energy_j / time_s
    if _LEAST_W <= power_w <= _MOST_W:
        return
    likely = [
        f"{column} is in {unit}"
        for column, unit, corrected_w, corrected_s in (
            ("time", "ms", power_w * 1e3, time_s / 1e3),
            ("time", "us", power_w * 1e6, time_s / 1e6),
            ("energy", "mJ", power_w / 1e3, time_s),
            ("energy", "uJ", power_w / 1e6, time_s),
            ("energy", "kJ", power_w * 1e3, time_s),
            ("energy", "Wh", power_w * 3600.0, time_s),
            ("energy", "kWh", power_w * 3.6e6, time_s),
            ("energy", "W", energy_j, time_s),
        )
        if _LIKELY_W[0] <= corrected_w <= _LIKELY_W[1] and _LIKELY_S[0] <= corrected_s <= _LIKELY_S[1]
    ]
    guess = f"; perhaps {' or '.join(likely)}" if likely else ""
    raise ProfileError(
        f"{where}: {energy_j:.4g} J in {time_s:.4g} s are {power_w:.3g} W for one GPU",
        hint=f"expected seconds and joules, {_LEAST_W:g} to {_MOST_W:g} W{guess}",
    )


# One row of a file for each computation, and for each point of it.

OF_KEY = ("stage", "kind")
_KINDS = {kind.value: kind for kind in Kind}
_MOST_WORD = 40


def computation_row(key: Computation) -> dict[str, object]:
    """Write which computation a row is of."""
    return {"stage": key[0], "kind": key[1].value}


def point_row(point: Point) -> dict[str, object]:
    """Write a point; a temperature that nobody read is left out."""
    row = asdict(point)
    if point.temperature_c is None:
        del row["temperature_c"]
    return row


def key_of(row: Content) -> Computation:
    """Read which computation a row is of.

    Raises:
        PerseusError: there is no such one.
    """
    stage, kind = whole(row, "stage", least=0, most=MOST_STAGES - 1), line(row, "kind", most=_MOST_WORD)
    if kind not in _KINDS:
        raise PerseusError(f"kind is {kind!r}", hint=f"one of {' '.join(_KINDS)}")
    return stage, _KINDS[kind]


def point_of(row: Content) -> tuple[Computation, Point]:
    """Read a point, and of which computation it is.

    Raises:
        PerseusError: naming the key.
    """
    return key_of(row), record(Point, {key: value for key, value in row.items() if key not in OF_KEY})


FORMAT = "perseus-profile"
VERSION = 1
_MOST_BYTES = 32 << 20  # 50 000 points are 12 MB
_OF_A_TABLE = frozenset({".csv", ".tsv", ".txt"})
_MOST_MHZ = 100_000
_LATENCIES = ("call_s", "up_s", "down_s", "together_s", "counter_period_s")
_MOST_S = 1e6


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_whole(Path(path), profile_json(profile) + "\n")


def profile_json(profile: Profile) -> str:
    """Return all of a profile as its file holds it."""
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
        "fixed_s": [computation_row(key) | {"time_s": time_s} for key, time_s in profile.fixed_s.items()],
        "calibration": None if profile.calibration is None else asdict(profile.calibration),
        "points": [
            computation_row(key) | point_row(point)
            for key, points in profile.points.items()
            for point in points
        ],
    }
    if profile.loads:
        content["loads"] = [
            computation_row(key) | asdict(fit) | {"covariance": list(fit.covariance)}
            for key, fit in profile.loads.items()
        ]
    if profile.grid_mhz:
        content["grid_mhz"] = list(profile.grid_mhz)
    return json.dumps(content | {KEY: digest_of(content)}, indent=1)


def read_profile(path: str | Path, *, writers: frozenset[int] | None = None) -> Profile:
    """Read a profile: ours, or the CSV of Zeus when the name ends in ``.csv`` (or ``.tsv``, ``.txt``).

    With ``writers`` it is believed only where nobody else could have written it (`read_bounded`). A digest
    that does not fit is refused. A file without one is taken: older profiles and those of other programs have
    none, and a user who changes one by hand removes it.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    path = Path(path)
    if not _OF_A_TABLE.isdisjoint(suffix.lower() for suffix in path.suffixes):
        return read_csv(path)
    try:
        content = read_json(path, most_bytes=_MOST_BYTES, writers=writers, shared=True)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint or "profile the job again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ProfileError(f"{path} is not a profile", hint=f'expected "format": "{FORMAT}" or a .csv')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a profile of version {content.get('version')!r:.40}",
            hint=f"we read version {VERSION}",
        )
    try:
        profile = _profile(content)
        if KEY in content:
            _check_digest(content)
    except PerseusError as error:
        raise ProfileError(f"{path}: {error.message}", hint=error.hint) from error
    return profile


def _check_digest(content: Content) -> None:
    try:
        check_digest(content)
    except PerseusError as error:
        raise ProfileError(
            error.message, hint=f'profile the job again, or remove "{KEY}" from it and answer for it yourself'
        ) from error


def _profile(content: Content) -> Profile:
    points: dict[Computation, list[Point]] = {}
    for key, point in rows(content.get("points"), "points", point_of):
        points.setdefault(key, []).append(point)
    fixed = list(rows(content.get("fixed_s"), "fixed_s", _fixed))
    if len(dict(fixed)) < len(fixed):
        raise PerseusError("fixed_s names a computation twice")
    loads = list(rows(content.get("loads", []), "loads", _load_fit))
    if len(dict(loads)) < len(loads):
        raise PerseusError("loads names a computation twice")
    blocking = mapping(content.get("blocking_w"), "blocking_w")
    return Profile(
        points={key: tuple(of_key) for key, of_key in points.items()},
        blocking_power_w=real_or_none(content, "blocking_power_w", least=0, most=MOST),
        blocking_w={_clock_mhz(clock): within("blocking_w", _watts, blocking, clock) for clock in blocking},
        fixed_s=dict(fixed),
        fingerprint=texts(content.get("fingerprint"), "fingerprint"),
        window_s=real_or_none(content, "window_s", least=0, most=MOST),
        calibration=read_calibration(content.get("calibration")),
        size_variation=real({"size_variation": 0.0, **content}, "size_variation", least=0.0, most=100.0),
        leakage=real({"leakage": 0.0, **content}, "leakage", least=0.0, most=MOST_LEAKAGE),
        leakage_se=real({"leakage_se": 0.0, **content}, "leakage_se", least=0.0, most=MOST_LEAKAGE),
        loads=dict(loads),
        grid_mhz=_grid_mhz(content.get("grid_mhz", [])),
    )


def _fixed(row: Content) -> tuple[Computation, float]:
    return key_of(row), real(row, "time_s", least=0, most=MOST)


def _load_fit(row: Content) -> tuple[Computation, LoadFit]:
    mean = mapping(row.get("mean"), "mean")
    covariance = {str(n): value for n, value in enumerate(listed(row.get("covariance"), "covariance"))}
    return key_of(row), LoadFit(
        mean=Load(*(real(mean, key, least=0.0, most=MOST_LOAD) for key in ("tokens", "squares"))),
        base=real(row, "base", least=0.0, most=MOST),
        tokens=real(row, "tokens", least=0.0, most=MOST),
        squares=real(row, "squares", least=0.0, most=MOST),
        scatter=real(row, "scatter", least=0.0, most=MOST),
        r2=real(row, "r2", least=0.0, most=1.0),
        samples=whole(row, "samples", least=1, most=MOST_COUNT),
        covariance=tuple(real(covariance, key, least=-MOST, most=MOST) for key in covariance),
    )


def _grid_mhz(value: object) -> tuple[int, ...]:
    clocks = {str(place): one for place, one in enumerate(listed(value, "grid_mhz"))}
    return tuple(whole(clocks, place, least=1, most=_MOST_MHZ) for place in clocks)


def _watts(blocking: Content, clock: str) -> float:
    return real(blocking, clock, least=0, most=MOST)


def _clock_mhz(key: str) -> int:
    """A clock that is a key: written as we write it, or two keys could name one."""
    if not (key.isascii() and key.isdecimal() and len(key) <= _MOST_WORD and str(int(key)) == key):
        raise PerseusError(f"blocking_w has the clock {key!r:.40}", hint="expected whole MHz")
    return int(key)


def read_calibration(content: object) -> Calibration | None:
    """Read what `dataclasses.asdict` made of a calibration; profiles of before have none.

    Raises:
        ProfileError: naming the key that is missing or is no duration.
    """
    if content is None:
        return None
    if not isinstance(content, dict):
        raise ProfileError("calibration is not an object", hint="profile the job again")
    times_s = {key: _duration_s(key, content.get(key)) for key in _LATENCIES}
    memory_why_not = content.get("memory_why_not")
    if not isinstance(memory_why_not, str | None):
        raise ProfileError(
            f"calibration.memory_why_not is {memory_why_not!r:.40}", hint="expected text, or null"
        )
    return Calibration(
        **times_s,
        unreached=_count("unreached", content),
        idle=_count("idle", content),
        memory_why_not=memory_why_not,
    )


def _count(key: str, content: dict[str, object]) -> int:
    value = content.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProfileError(f"calibration.{key} is {value!r:.40}", hint="profile the job again")
    return value


def _duration_s(key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"calibration.{key} is {value!r:.40}", hint="expected seconds, or null")
    if not 0 <= value <= _MOST_S:
        raise ProfileError(f"calibration.{key} is {value!r}", hint=f"expected seconds, 0 to {_MOST_S:g}")
    return float(value)
