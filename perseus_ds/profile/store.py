"""Our own profile file: JSON with units in the key names, written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import (
    KEY,
    MOST,
    MOST_COUNT,
    Content,
    check_digest,
    digest_of,
    listed,
    mapping,
    read_json,
    real,
    real_or_none,
    rows,
    texts,
    whole,
    within,
)
from perseus_ds.profile.estimating.thermal import MOST_LEAKAGE
from perseus_ds.profile.loads.load_fit import LoadFit
from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.profile.rows import computation_row, key_of, point_of, point_row
from perseus_ds.profile.zeus_csv import read_csv
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.schedule import Load
from perseus_ds.schedule.instruction import MOST_LOAD

FORMAT = "perseus-profile"
VERSION = 1
_MOST_BYTES = 32 << 20  # 50 000 points are 12 MB
_OF_A_TABLE = frozenset({".csv", ".tsv", ".txt"})
_MOST_WORD = 40
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
