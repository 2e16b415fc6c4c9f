import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.profile import LoadFit, Point, Profile, read_profile, write_profile
from perseus_ds.schedule import Kind, Load

CALIBRATION = Calibration(0.004, 0.037, 0.035, 0.046, 0.1, 1, 1)
FITTED = LoadFit(Load(4096.0, 2e7), 0.1, 0.7, 0.2, 0.01, 0.97, 400, (1e-4, -1e-5) + (0.0,) * 4)
PROFILE = Profile(
    points={
        (0, Kind.FORWARD): (Point(1410, 0.1, 30.0, 1e-3, 0.2, 40, 1395, 4, 0.004), Point(1200, 0.12, 27.0)),
        (1, Kind.BACKWARD): (Point(1410, 0.2, 61.0),),
    },
    blocking_power_w=83.64,
    blocking_w={1410: 85.4, 705: 59.4},
    fixed_s={(0, Kind.SEND_ACTIVATION): 2e-4, (1, Kind.STEP): 0.0},
    fingerprint={"gpu": "A100", "stages": "2"},
    window_s=5.0,
    size_variation=0.3,
    leakage=0.026,
    leakage_se=0.004,
    calibration=CALIBRATION,
    loads={(0, Kind.FORWARD): FITTED},
)
Damage = Callable[[dict[str, Any]], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "profile.json"
    write_profile(PROFILE, path)
    return path


def test_reads_back_what_it_wrote_with_units_in_its_keys(file: Path) -> None:
    assert read_profile(file) == PROFILE
    assert [path.name for path in file.parent.iterdir()] == ["profile.json"]
    point = {"stage": 0, "kind": "F", "clock_mhz": 1410, "time_s": 0.1, "energy_j": 30.0, "time_se_s": 1e-3}
    more = {"energy_se_j": 0.2, "samples": 40, "achieved_mhz": 1395, "event_reasons": 4, "time_sd_s": 0.004}
    assert json.loads(file.read_text())["points"][0] == point | more


def change(key: str, value: object, of: str | None = None) -> Damage:
    """Change a key of the whole, or of the first of its ``points`` or ``loads``."""
    return lambda content: (content if of is None else content[of][0]).update({key: value})


def rewrite(file: Path, damage: Damage, *, sealed: bool = False) -> None:
    content = json.loads(file.read_text())
    if not sealed:
        del content["sha256"]
    damage(content)
    file.write_text(json.dumps(content))


DAMAGE = [
    (change("format", "else"), "perseus-profile"),
    (change("version", 99), "version"),
    (lambda content: content.pop("fixed_s"), "fixed_s"),
    (lambda content: content["points"].append(dict(content["points"][0], energy_j=1.0)), "twice"),
    (lambda content: content["fixed_s"].append(content["fixed_s"][0]), "twice"),
    *[
        (change(key, value), where)
        for key, value, where in [
            ("points", 3, "points"),
            ("fingerprint", {"gpu": ["A100"]}, "fingerprint.gpu"),
            ("blocking_power_w", "hot", "blocking_power_w"),
            ("blocking_w", {"5": float("nan")}, "NaN"),
            ("blocking_w", {"0705": 50.0}, "0705"),
            ("fixed_s", [{"stage": 1, "kind": "OS", "time_s": -3}], "fixed_s.0.time_s"),
            ("window_s", -1, "window_s"),
            ("calibration", 7, "calibration"),
            ("calibration", asdict(CALIBRATION) | {"call_s": -1.0}, "calibration.call_s"),
        ]
    ],
    *[
        (change(key, value, "points"), f"points.0.{key}")
        for key, value in [
            *[("stage", -1), ("stage", True), ("stage", 10**9), ("stage", "0" * 1_000_000)],
            *[("clock_mhz", 0), ("clock_mhz", True), ("clock_mhz", 1410.0), ("clock_mhz", 10**9)],
            *[("time_s", "1"), ("time_s", 1e308), ("time_s", 0.0), ("time_se_s", -1.0), ("time_sd_s", -0.1)],
            *[("energy_j", -1), ("energy_j", True), ("samples", True), ("samples", 0)],
            ("temperature_c", 900.0),
        ]
    ],
    (change("time_s", float("nan"), "points"), "NaN"),
    *[
        (change(key, value, "loads"), f"loads.0.{key}")
        for key, value in [("tokens", -0.1), ("r2", 1.5), ("samples", 0), ("covariance", [0.0] * 5)]
    ],
    (change("mean", {"tokens": -1.0, "squares": 0.0}, "loads"), "tokens"),
]


@pytest.mark.parametrize(("damage", "word"), DAMAGE)
def test_damage_is_refused_in_one_line_with_file_and_key(file: Path, damage: Damage, word: str) -> None:
    rewrite(file, damage)
    line = refused(file)
    assert word in line
    assert "\n" not in line
    assert len(line) < 600


def test_a_change_by_hand_is_refused_with_the_remedy_and_who_takes_that_answers_for_it(file: Path) -> None:
    by_hand = change("energy_j", 29.0, "points")
    for damage in (by_hand, change("sha256", 5)):
        rewrite(file, damage, sealed=True)
        assert 'remove "sha256"' in refused(file)
    rewrite(file, by_hand)
    assert read_profile(file).points[0, Kind.FORWARD][0].energy_j == 29.0


def test_points_come_highest_clock_first_and_what_was_not_measured_is_an_error_that_names_it() -> None:
    points = tuple(Point(clock, 1.0, 1.0) for clock in (900, 1410, 1200))
    profile = Profile({(0, Kind.FORWARD): points})
    assert [point.clock_mhz for point in profile.of(0, Kind.FORWARD)] == [1410, 1200, 900]
    assert profile.clocks_mhz == (1410, 1200, 900)
    assert profile.stages == 1
    with pytest.raises(IncompleteProfileError, match="backward"):
        PROFILE.of(7, Kind.BACKWARD)


def test_how_a_profile_is_laid_out_is_not_its_content(file: Path) -> None:
    before = read_profile(file)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(content.items())), indent=4))
    assert read_profile(file) == before


def test_a_profile_of_before_lacks_what_came_later(file: Path) -> None:
    content = json.loads(file.read_text())
    for key in ("loads", "calibration", "leakage", "size_variation", "sha256"):
        del content[key]
    for point in content["points"]:
        del point["time_sd_s"]
    file.write_text("\ufeff" + json.dumps(content | {"of a later release": 1}))
    profile = read_profile(file)
    assert (profile.loads, profile.calibration, profile.leakage) == ({}, None, 0.0)
    assert all(point.time_sd_s is None for points in profile.points.values() for point in points)


def refused(path: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


@pytest.mark.thorough
def test_more_clocks_than_any_gpu_has_are_refused(file: Path) -> None:
    first = json.loads(file.read_text())["points"][0]
    rewrite(file, change("points", [first | {"clock_mhz": 1 + n} for n in range(20_000)]))
    assert "4096" in refused(file)
