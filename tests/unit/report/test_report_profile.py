"""The profile on the page: a row for each curve, what was left out, predicted against measured."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from perseus_ds.cli import main
from perseus_ds.profile import Point, Profile, write_csv, write_profile
from perseus_ds.report.page import profile_sections
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event
from perseus_ds.schedule import Kind

WriteRun = Callable[..., Path]


def section_of(run: Path, heading: str) -> dict[str, object]:
    (found,) = [one for one in profile_sections(load_run(run), {}) if one["heading"] == heading]
    return found


def cells(section: dict[str, object]) -> list[list[str]]:
    rows = section["rows"]
    assert isinstance(rows, list)
    return rows


def with_errors(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(
        replace(one, time_se_s=0.01 * one.time_s, energy_se_j=0.02 * one.energy_j, samples=20)
        for one in points
    )


def test_a_run_has_a_row_for_each_curve_with_what_the_plan_uses(write_run: WriteRun) -> None:
    rows = cells(section_of(write_run(), "Each curve of the profile"))
    curves = [("0", "backward"), ("0", "forward"), ("1", "backward"), ("1", "forward")]
    assert [tuple(row[0].split()[1:]) for row in rows] == curves
    assert all(row[1].split() == ["5:", "930", "to", "1410"] for row in rows)
    assert all(row[2] != "-" for row in rows)


def test_predicted_durations_stand_beside_measured_ones(write_run: WriteRun) -> None:
    rows = cells(section_of(write_run(), "Predicted and measured durations"))
    assert len(rows) == 4
    for _, predicted, measured, difference in rows:
        assert float(measured) == pytest.approx(float(predicted), rel=0.02)
        assert difference.endswith(" %")


@pytest.mark.thorough
def test_errors_and_residuals_are_shown_where_the_profile_states_them(
    write_run: WriteRun, profile: Profile
) -> None:
    run = write_run()
    points = {key: with_errors(own) for key, own in profile.points.items()}
    worse = list(points[0, Kind.FORWARD])
    worse[2] = replace(worse[2], time_s=1.2 * worse[2].time_s)
    write_profile(replace(profile, points=points | {(0, Kind.FORWARD): tuple(worse)}), run / "profile.json")
    rows = {row[0].removeprefix("stage "): row for row in cells(section_of(run, "Each curve of the profile"))}
    assert rows["1 backward"][4:6] == ["1.00 %", "2.00 %"]
    assert float(rows["0 forward"][6]) > float(rows["1 backward"][6])
    assert rows["0 forward"][3] == "1170"


def test_clocks_that_did_not_hold_are_named_with_the_reason(write_run: WriteRun) -> None:
    run = write_run()
    append_event(run / "events.jsonl", "not_held", {"clocks_mhz": [1800, 1700]})
    append_event(run / "events.jsonl", "window_too_short", {"clock_mhz": 1410})
    words = str(section_of(run, "Each curve of the profile")["words"])
    assert "1800, 1700" in words
    assert "1 window" in words


@pytest.mark.parametrize("name", ["profile.json", "profile.csv"])
def test_a_profile_alone_has_a_page(
    name: str, profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    (write_csv if name.endswith("csv") else write_profile)(profile, file)
    assert main(["report", str(file)]) == 0
    assert "profile.html" in capsys.readouterr().out
    page = unescape((tmp_path / "profile.html").read_text())
    assert "no errors" in page
    assert re.search(r"backward</td><td class=\"n\">5:", page)
    assert "predicted, s" not in page


def test_a_file_that_is_no_profile_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profile.json"
    file.write_text("{}")
    assert main(["report", str(file)]) == 1
    error = capsys.readouterr().err
    assert "profile.json" in error
    assert error.count("\n") <= 2
