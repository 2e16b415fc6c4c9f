"""The CSV that Zeus and the Perseus artifact use: ``stage,instruction,frequency,time,energy``."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from pathlib import Path

from perseus_ds.errors import ProfileError
from perseus_ds.files import Row, number_in, read_table
from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.schedule import Kind

COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_MOST_BYTES = 8 << 20  # 200 000 rows
_LEAST_MHZ, _MOST_MHZ = 10.0, 2e4  # GPUs run from 100 to 4 000 MHz: what is outside is in another unit
_LEAST_W, _MOST_W = 5.0, 3e3  # of one GPU
_LIKELY_W = 30.0, 1500.0
_LIKELY_S = 2e-4, 50.0  # one forward or backward of one microbatch
_KINDS = {
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
    for where, row in read_table(path, COLUMNS, most_bytes=_MOST_BYTES):
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
    names = {kind: name for name, kind in _KINDS.items()}
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
    if name not in _KINDS:
        raise ProfileError(f"{where}: instruction is {row['instruction']!r}", hint=f"{', '.join(_KINDS)}")
    stage = number_in(row, "stage", where, low=0.0)
    if not stage.is_integer():
        raise ProfileError(f"{where}: stage is {row['stage']!r}", hint="expected 0, 1, 2, ...")
    time_s, energy_j = number_in(row, "time", where), number_in(row, "energy", where)
    point = Point(clock_mhz=_clock_mhz(row, where), time_s=time_s, energy_j=energy_j)
    check_power(time_s, energy_j, where)
    return (int(stage), _KINDS[name]), point


def _clock_mhz(row: Row, where: str) -> int:
    clock = number_in(row, "frequency", where)
    limits = {"GHz": _LEAST_MHZ, "MHz": _MOST_MHZ, "kHz": 1e3 * _MOST_MHZ, "Hz": math.inf}
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
