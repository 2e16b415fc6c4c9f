import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.profile import LoadFit, Point, Profile, read_profile, write_profile
from perseus_ds.schedule import Kind, Load

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
    calibration=Calibration(0.004, 0.037, 0.035, 0.046, 0.1, 1, 1, "there is one memory clock only"),
    loads={
        (0, Kind.FORWARD): LoadFit(
            Load(4096.0, 2e7), 0.1, 0.7, 0.2, 0.01, 0.97, 400, (1e-4, -1e-5) + (0.0,) * 4
        )
    },
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "profile.json"
    write_profile(PROFILE, path)
    return path


def test_reads_back_what_it_wrote(file: Path) -> None:
    assert read_profile(file) == PROFILE
    assert [path.name for path in file.parent.iterdir()] == ["profile.json"]


def test_keys_carry_their_units(file: Path) -> None:
    content = json.loads(file.read_text())
    assert content["points"][0] == {
        "stage": 0,
        "kind": "F",
        "clock_mhz": 1410,
        "time_s": 0.1,
        "energy_j": 30.0,
        "time_se_s": 1e-3,
        "energy_se_j": 0.2,
        "samples": 40,
        "achieved_mhz": 1395,
        "event_reasons": 4,
        "time_sd_s": 0.004,
    }


def test_a_file_of_before_does_not_say_how_durations_vary(file: Path) -> None:
    content = json.loads(file.read_text())
    del content["sha256"]
    for point in content["points"]:
        del point["time_sd_s"]
    file.write_text(json.dumps(content))
    assert [point.time_sd_s for points in read_profile(file).points.values() for point in points] == [
        None
    ] * 3


def test_every_truncation_is_refused_in_one_line(file: Path) -> None:
    whole = file.read_text()
    for length in range(0, len(whole) - 2, 7):
        file.write_text(whole[:length])
        with pytest.raises(ProfileError, match="JSON") as caught:
            read_profile(file)
        assert str(caught.value).startswith(str(file))
        assert "\n" not in str(caught.value)


def change(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update({key: value})


def change_point(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["points"][0].update({key: value})


DAMAGE = {
    "another format": (change("format", "else"), "is not a profile"),
    "another version": (change("version", 99), "is a profile of version 99 (we read version 1)"),
    "points are a number": (change("points", 3), "points is 3 (expected a list)"),
    "fingerprint is a list": (change("fingerprint", []), "fingerprint is a list of 0"),
    "blocking power is text": (
        change("blocking_power_w", "hot"),
        "blocking_power_w is 'hot'",
    ),
    "blocking power is negative": (change("blocking_power_w", -1), "blocking_power_w is -1 (expected"),
    "a blocking power is NaN": (
        change("blocking_w", {"5": float("nan")}),
        "has NaN where a number should be",
    ),
    "a key is missing": (lambda content: content.pop("fixed_s"), "fixed_s is None (expected a list)"),
    "a fixed time is negative": (
        change("fixed_s", [{"stage": 1, "kind": "OS", "time_s": -3}]),
        "fixed_s[0].time_s is -3 (expected a number, 0 to 1e+12)",
    ),
    "a point's kind is unknown": (
        change_point("kind", "Q"),
        "points[0].kind is 'Q'",
    ),
    "a point's stage is negative": (change_point("stage", -1), "points[0].stage is -1"),
    "a point's time is NaN": (
        change_point("time_s", float("nan")),
        "has NaN where a number should be",
    ),
    "a point's energy is negative": (
        change_point("energy_j", -1),
        "points[0].energy_j is -1",
    ),
    "a point's time is text": (change_point("time_s", "1"), "points[0].time_s is '1'"),
    "a point's clock is zero": (change_point("clock_mhz", 0), "the clock is not a positive number of MHz"),
    "a point's error is negative": (change_point("time_se_s", -1.0), "points[0].time_se_s is -1.0"),
    "a point's samples are true": (change_point("samples", True), "points[0].samples is True"),
    "a point of no samples": (change_point("samples", 0), "samples is 0 (expected 1 or more)"),
    "a point's reasons are text": (change_point("event_reasons", "0x4"), "points[0].event_reasons is '0x4'"),
    "a point's achieved clock is a list": (change_point("achieved_mhz", [1410]), "points[0].achieved_mhz is"),
    "a point's achieved clock is none": (change_point("achieved_mhz", 999_999), "achieved_mhz is 999999"),
    "a point as hot as no chip": (
        change_point("temperature_c", 900.0),
        "temperature_c is 900.0 (expected deg",
    ),
    "the same clock twice": (
        lambda content: content["points"].append(dict(content["points"][0], energy_j=1.0)),
        "stage 0 forward has a clock twice",
    ),
    "a fixed time twice": (
        lambda content: content["fixed_s"].append(content["fixed_s"][0]),
        "fixed_s names a computation twice",
    ),
    "a waiting clock in other digits": (change("blocking_w", {"0705": 50.0}), "has the clock '0705'"),
    "a waiting clock that none has": (change("blocking_w", {"999999": 50.0}), "there is no such clock"),
    "a waiting power is true": (change("blocking_w", {"705": True}), "blocking_w.705 is True"),
    "a fingerprint of a list": (change("fingerprint", {"gpu": ["A100"]}), "fingerprint.gpu is a list of 1"),
    "a window of minus one second": (change("window_s", -1), "window_s is -1"),
    "another energy, by hand": (
        change_point("energy_j", 29.0),
        'changed since (profile the job again, or remove "sha256" from it and answer for it yourself)',
    ),
    "a digest that is a number": (change("sha256", 5), "changed since"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_in_one_line_with_the_file(
    file: Path, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = json.loads(file.read_text())
    damage(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileError) as caught:
        read_profile(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "list.json").write_text("[]")
    for name, message in [
        ("bytes.json", "UTF-16"),
        ("list.json", "is not a profile"),
        ("nowhere.json", "No such file"),
    ]:
        with pytest.raises(ProfileError, match=message):
            read_profile(tmp_path / name)


def test_points_come_highest_clock_first_whatever_the_order() -> None:
    points = tuple(Point(clock, 1.0, 1.0) for clock in (900, 1410, 1200))
    profile = Profile({(0, Kind.FORWARD): points})
    assert [point.clock_mhz for point in profile.of(0, Kind.FORWARD)] == [1410, 1200, 900]
    assert profile.clocks_mhz == (1410, 1200, 900)
    assert profile.stages == 1


def test_what_was_not_measured_is_an_error_that_names_it() -> None:
    with pytest.raises(IncompleteProfileError, match="backward"):
        PROFILE.of(7, Kind.BACKWARD)


def test_a_profile_of_before_calibrations_is_read(file: Path) -> None:
    content = json.loads(file.read_text())
    del content["calibration"], content["sha256"]
    file.write_text(json.dumps(content))
    assert read_profile(file).calibration is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (7, "calibration"),
        ({"up_s": "fast"}, "calibration.up_s"),
        ({"call_s": -1.0}, "calibration.call_s"),
        ({"unreached": None}, "calibration.unreached"),
    ],
)
def test_a_damaged_calibration_is_refused_by_its_key(file: Path, wrong: object, named: str) -> None:
    content = json.loads(file.read_text())
    content["calibration"] = wrong
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=named.replace(".", r"\.")) as caught:
        read_profile(file)
    assert str(caught.value).startswith(str(file))


def test_who_changes_a_profile_by_hand_answers_for_it(file: Path) -> None:
    content = json.loads(file.read_text())
    content["points"][0]["energy_j"] = 29.0
    del content["sha256"]
    file.write_text(json.dumps(content))
    assert max(p.energy_j for points in read_profile(file).points.values() for p in points) >= 29.0


def test_how_a_profile_is_laid_out_is_not_its_content(file: Path) -> None:
    before = read_profile(file)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(content.items())), indent=4))
    assert read_profile(file) == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": -0.1}, "loads[0].tokens"),
        ({"mean": {"tokens": -1.0, "squares": 0.0}}, "loads[0].tokens"),
        ({"r2": 1.5}, "loads[0].r2"),
        ({"samples": 0}, "loads[0].samples"),
        ({"covariance": [0.0] * 5}, "finite"),
    ],
)
def test_loads_that_mean_nothing_are_refused(file: Path, change: dict[str, Any], why: str) -> None:
    content = json.loads(file.read_text())
    del content["sha256"]
    content["loads"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=re.escape(why)):
        read_profile(file)


def test_a_profile_of_before_knows_nothing_of_loads(file: Path) -> None:
    content = json.loads(file.read_text())
    del content["loads"], content["sha256"]
    file.write_text(json.dumps(content))
    assert read_profile(file).loads == {}
