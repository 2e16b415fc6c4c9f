"""Our own profile file: JSON with units in the key names, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TypeVar

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import read_json
from perseus_ds.files.fields import real, whole
from perseus_ds.profile.calibration import read_calibration
from perseus_ds.profile.record import MOST_STAGES, Computation, Point, Profile
from perseus_ds.profile.zeus_csv import read_csv
from perseus_ds.run_directory import write_json
from perseus_ds.schedule import Kind

FORMAT = "perseus-profile"
VERSION = 1
_MOST_BYTES = 32 << 20  # 50 000 points are 12 MB
Part = TypeVar("Part")


def write_profile(profile: Profile, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": dict(profile.fingerprint),
        "window_s": profile.window_s,
        "blocking_power_w": profile.blocking_power_w,
        "blocking_w": {str(clock): power for clock, power in profile.blocking_w.items()},
        "fixed_s": [_computation(key) | {"time_s": time_s} for key, time_s in profile.fixed_s.items()],
        "calibration": None if profile.calibration is None else asdict(profile.calibration),
        "points": [
            _computation(key) | asdict(point) for key, points in profile.points.items() for point in points
        ],
    }
    write_json(path, content)


def read_profile(path: Path) -> Profile:
    """Read a profile: ours, or the CSV of Zeus when the name ends in ``.csv``.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    if path.suffix.lower() == ".csv":
        return read_csv(path)
    try:
        content = read_json(path, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint="profile the job again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ProfileError(f"{path} is not a profile", hint=f'expected "format": "{FORMAT}" or a .csv')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a profile of version {content.get('version')!r:.40}",
            hint=f"we read version {VERSION}",
        )
    try:
        return _profile(content)
    except PerseusError as error:
        raise ProfileError(f"{path}: {error.message}", hint=error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProfileError(
            f"{path} is damaged: {type(error).__name__} {error!s:.200}", hint="profile the job again"
        ) from error


def _computation(key: Computation) -> dict[str, object]:
    return {"stage": key[0], "kind": key[1].value}


def _profile(content: Mapping[str, object]) -> Profile:
    points: dict[Computation, list[Point]] = {}
    for row in _part(content, "points", list):
        points.setdefault(_key(row), []).append(Point(**row))
    blocking = _part(content, "blocking_w", dict)
    fixed = _part(content, "fixed_s", list)
    return Profile(
        points={key: tuple(of_key) for key, of_key in points.items()},
        blocking_power_w=_number_or_none(content, "blocking_power_w"),
        blocking_w={int(clock): float(watts) for clock, watts in blocking.items()},
        fixed_s={_key(row): real(row, "time_s", least=-inf, most=inf) for row in fixed},
        fingerprint={str(k): str(v) for k, v in _part(content, "fingerprint", dict).items()},
        window_s=_number_or_none(content, "window_s"),
        calibration=read_calibration(content.get("calibration")),
    )


def _key(row: dict[str, object]) -> Computation:
    """Take the computation out of a row."""
    stage = whole(row, "stage", least=-MOST_STAGES, most=MOST_STAGES)
    del row["stage"]
    return stage, Kind(row.pop("kind"))


def _part(content: Mapping[str, object], key: str, kind: type[Part]) -> Part:
    part = content[key]
    if not isinstance(part, kind):
        raise TypeError(f"{key} is a {type(part).__name__}")
    return part


def _number_or_none(content: Mapping[str, object], key: str) -> float | None:
    value = content[key]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r:.40}")
    return float(value)
