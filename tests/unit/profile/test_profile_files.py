"""Profiles in files: ours in JSON, and tables as others write them."""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.profile import Point, Profile, read_profile, write_profile
from perseus_ds.profile.files import read_csv, write_csv
from perseus_ds.profile.loads import LoadFit
from perseus_ds.schedule import Kind, Load
from perseus_ds.simulation import gpt3

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
            ("blocking_w", {"70x": 50.0}, "70x"),
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


# Tables: what Zeus writes and what people make of it.

HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "0,forward,1410,0.1,30.5\n0,backward,1410,0.2,61\n0,forward,1200,0.12,27\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "profile.csv"


def test_reads_what_zeus_writes(table: Path) -> None:
    table.write_text(GOOD)
    assert read_profile(table).points == {
        (0, Kind.FORWARD): (Point(1410, 0.1, 30.5), Point(1200, 0.12, 27.0)),
        (0, Kind.BACKWARD): (Point(1410, 0.2, 61.0),),
    }


def test_reads_other_columns_over_in_any_order_and_blanks_and_capitals_do_no_harm(table: Path) -> None:
    table.write_text("\ufeffenergy,note,time,frequency,instruction,stage\r\n61,,0.2,1410.0, Backward ,3\r\n")
    assert read_csv(table).points == {(3, Kind.BACKWARD): (Point(1410, 0.2, 61.0),)}
    table.write_text(GOOD)
    plain = read_csv(table).points
    table.write_text(GOOD.replace(",", " , ").replace("stage", "\ufeff Stage", 1).replace("energy", "ENERGY"))
    assert read_csv(table).points == plain


def test_a_table_comes_back_to_the_last_bit(table: Path) -> None:
    named = [kind for kind in Kind if kind.is_computation and kind is not Kind.UNKNOWN_COMPUTE]
    points = Point(1410, 0.1 + 0.2, 100.0 / 3.0), Point(1200, 1e-9 / 3.0, 1e-7)
    profile = Profile(dict.fromkeys(enumerate(named), points))
    write_csv(profile, table)
    assert read_csv(table).points == profile.points


BAD_ROWS = {
    "time is negative": ("0,forward,1410,-0.1,30", "time"),
    "energy is NaN": ("0,forward,1410,0.1,nan", "energy"),
    "time is a word": ("0,forward,1410,fast,30", "time"),
    "a cell is missing": ("0,forward,1410,0.1", "energy"),
    "a cell too many": ("0,forward,1410,0.1,30,9", "cells"),
    "a decimal comma": ("0,forward,1410,0,1,30", "cells"),
    "a decimal comma in quotes": ('0,forward,1410,"0,1",30', "time"),
    "a separator of thousands": ('0,forward,"1,410",0.1,30', "frequency"),
    "unknown instruction": ("0,sideways,1410,0.1,30", "sideways"),
    "stage is negative": ("-1,forward,1410,0.1,30", "stage"),
    "stage is a fraction": ("0.5,forward,1410,0.1,30", "stage"),
    "frequency is negative": ("0,forward,-5,0.1,30", "frequency"),
    "frequency in GHz": ("0,forward,1.41,0.1,30", "frequency"),
    "measured twice": ("0,forward,1410,0.3,33", "again"),
    "time in ms": ("0,forward,1390,100,30", "W"),
    "power for energy": ("0,forward,1390,0.05,300", "W"),
    "no power that any unit explains": ("0,forward,1390,0.1,1e-9", "joules"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_with_file_row_and_column(table: Path, row: str, message: str) -> None:
    table.write_text(GOOD + row + "\n0,backward,1200,0.3,50\n")
    with pytest.raises(ProfileError) as caught:
        read_csv(table)
    assert str(caught.value).startswith(f"{table}: row 5")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "a column missing": (b"stage,instruction,frequency,time_ms,energy\n0,forward,1410,9,9\n", "time_ms"),
    "a column twice": (b"stage,instruction,frequency,time,energy,Time\n", "twice"),
    "empty": (b"", "empty"),
    "no row": (HEADER.encode(), "row"),
    "in UTF-16": ("\ufeff".encode("utf-16-le") + GOOD.encode("utf-16-le"), "UTF-8"),
    "in Latin-1": (GOOD.encode() + b"0,forw\xe4rd,1,1,1\n", "UTF-8"),
    "gzip": (gzip.compress(GOOD.encode()), "UTF-8"),
    "a workbook": (b"PK\x03\x04" + bytes(30), "UTF-8"),
    "a text without end": (HEADER.encode() + b'0,"' + b"x" * 200_000, "CSV"),
    "separated by semicolons": (GOOD.replace(",", ";").encode(), "semicolons"),
    "with decimal commas too": (GOOD.replace(",", ";").replace(".", ",").encode(), "semicolons"),
    "separated by tabs": (GOOD.replace(",", "\t").encode(), "tabs"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_its_name(table: Path, content: bytes, message: str) -> None:
    table.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        read_csv(table)
    assert str(caught.value).startswith(str(table))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["profile.csv.gz", "PROFILE.CSV.GZ", "profile.json.gz", "profile.gz"])
def test_a_compressed_profile_is_named_as_such_whatever_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(GOOD.encode()))
    with pytest.raises(ProfileError, match="UTF-8"):
        read_profile(tmp_path / name)


def test_work_without_a_name_there_is_refused(table: Path) -> None:
    profile = Profile({(1, Kind.UNKNOWN_COMPUTE): (Point(1410, 0.1, 30.5),)})
    with pytest.raises(ProfileError, match="unknown compute"):
        write_csv(profile, table)
    assert not table.exists()


def test_the_profile_of_gpt3_is_written_as_csv_alone(tmp_path: Path) -> None:
    assert [gpt3.main([str(tmp_path / name)]) for name in ("a.json", "a.csv")] == [2, 0]
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]
