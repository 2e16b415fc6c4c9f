"""Our own profile file: JSON with units in the key names, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from perseus_ds.errors import ProfileError
from perseus_ds.profile.calibration import read_calibration
from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.profile.zeus_csv import read_csv
from perseus_ds.run_directory import write_json
from perseus_ds.schedule import Kind

FORMAT = "perseus-profile"
VERSION = 1
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
        content = json.loads(path.read_text())
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ProfileError(
            f"{path} is not JSON or is cut short: {error}", hint="profile the job again"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ProfileError(f"{path} is not a profile", hint=f'expected "format": "{FORMAT}" or a .csv')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a profile of version {content.get('version')}", hint=f"we read version {VERSION}"
        )
    try:
        return _profile(content)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error.message}", hint=error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProfileError(
            f"{path} is damaged: {type(error).__name__} {error}", hint="profile the job again"
        ) from error


def _computation(key: Computation) -> dict[str, object]:
    return {"stage": key[0], "kind": key[1].value}


def _profile(content: Mapping[str, object]) -> Profile:
    points: dict[Computation, tuple[Point, ...]] = {}
    for row in _part(content, "points", list):
        key = (int(row.pop("stage")), Kind(row.pop("kind")))
        points[key] = (*points.get(key, ()), Point(**row))
    blocking = _part(content, "blocking_w", dict)
    fixed = _part(content, "fixed_s", list)
    return Profile(
        points=points,
        blocking_power_w=_number_or_none(content, "blocking_power_w"),
        blocking_w={int(clock): float(watts) for clock, watts in blocking.items()},
        fixed_s={(int(row["stage"]), Kind(row["kind"])): float(row["time_s"]) for row in fixed},
        fingerprint={str(k): str(v) for k, v in _part(content, "fingerprint", dict).items()},
        window_s=_number_or_none(content, "window_s"),
        calibration=read_calibration(content.get("calibration")),
    )


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
        raise TypeError(f"{key} is {value!r}")
    return float(value)
