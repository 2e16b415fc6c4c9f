"""Profiles of others: what they may ask for is bounded before it is done."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perseus_ds.errors import ProfileError
from perseus_ds.profile import Point, Profile, read_profile, write_profile
from perseus_ds.schedule import Kind


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    write_profile(Profile({(0, Kind.FORWARD): (Point(1410, 0.1, 30.0),)}), path)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    assert len(line) < 500
    return line


def points_of(file: Path, *points: dict[str, Any]) -> None:
    content = json.loads(file.read_text())
    content["points"] = [content["points"][0] | point for point in points]
    file.write_text(json.dumps(content))


@pytest.mark.thorough
def test_more_points_than_any_job_has_are_refused(file: Path) -> None:
    points_of(file, *({"clock_mhz": 1 + i % 5000, "stage": i // 5000} for i in range(150_000)))
    assert "values" in refused(file)


@pytest.mark.thorough
def test_more_clocks_than_any_grid_has_are_refused(file: Path) -> None:
    points_of(file, *({"clock_mhz": 1 + i} for i in range(20_000)))
    assert "4096" in refused(file)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clock_mhz": True}, "points[0].clock_mhz"),
        ({"clock_mhz": 1410.0}, "points[0].clock_mhz"),
        ({"clock_mhz": 10**9}, "clock"),
        ({"clock_mhz": -1410}, "points[0].clock_mhz"),
        ({"time_s": 1e308}, "points[0].time_s"),
        ({"energy_j": True}, "points[0].energy_j"),
        ({"time_sd_s": -0.1}, "points[0].time_sd_s"),
        ({"stage": True}, "stage"),
        ({"stage": 10**9}, "stage"),
        ({"stage": "0" * 1_000_000}, "stage"),
        ({"kind": "F" * 1_000_000}, "points[0].kind"),
    ],
)
def test_points_that_mean_nothing_are_refused(file: Path, change: dict[str, Any], why: str) -> None:
    points_of(file, change)
    assert why in refused(file)


@pytest.mark.parametrize("name", ["profile", "profile.csv"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "ordinary" in refused(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert "ordinary" in refused(tmp_path / name)


@pytest.mark.parametrize(
    "row", ["0,forward,1e308,1,1", "1e300,forward,1410,1,1", "0,forward,1410,1e200,1", "0,forward,-5,1,1"]
)
def test_rows_that_mean_nothing_are_refused(tmp_path: Path, row: str) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(f"stage,instruction,frequency,time,energy\n{row}\n")
    refused(path)


@pytest.mark.parametrize("power_w", [-1.0, float("nan"), float("inf")])
def test_a_waiting_power_that_is_none_is_refused_with_its_clock(power_w: float) -> None:
    with pytest.raises(ProfileError, match="1200 MHz"):
        Profile({}, blocking_w={1200: power_w})
