"""The profile on the page: what was left out, predicted against measured durations."""

from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from perseus_ds.cli import main
from perseus_ds.profile import Profile, write_csv, write_profile
from perseus_ds.report.page import profile_sections
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event

WriteRun = Callable[..., Path]


def section_of(run: Path, heading: str) -> dict[str, object]:
    (found,) = [one for one in profile_sections(load_run(run), {}) if one["heading"] == heading]
    return found


def test_clocks_that_did_not_hold_are_named_with_the_reason(write_run: WriteRun) -> None:
    run = write_run()
    append_event(run / "events.jsonl", "not_held", {"clocks_mhz": [1800, 1700]})
    words = str(section_of(run, "The profile")["words"])
    assert "1800, 1700" in words


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
    assert "predicted, s" not in page
