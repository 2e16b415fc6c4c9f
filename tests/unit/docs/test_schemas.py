"""Files that the package writes keep to the schemas of the documentation; damaged ones do not."""

import json
from pathlib import Path

import pytest
from cli_program import check_file
from schedules import two_plans

from perseus_ds.plan import write_plans
from perseus_ds.profile import read_profile, write_profile
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.records import MeasuredSide, Summary, write_summary

PROFILE = Path(__file__).parents[3] / "docs" / "examples" / "profile.csv"
jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each kind, by its schema."""
    folder = tmp_path_factory.mktemp("files")
    found = {name: folder / f"{name}.json" for name in ("profile", "plan", "summary")}
    found["event"] = folder / "events.jsonl"
    write_profile(read_profile(PROFILE), found["profile"])
    write_plans(two_plans(), found["plan"])
    write_summary(Summary(MeasuredSide(1.0, 9.0, 3), MeasuredSide(1.0, 8.0, 9), True, 11.0), found["summary"])
    append_event(found["event"], "profiling", {"clock_mhz": 1410, "done": 0, "total": 8})
    return found


@pytest.mark.parametrize("name", ["profile", "plan", "summary", "event"])
def test_what_is_written_keeps_to_its_schema(files: dict[str, Path], name: str) -> None:
    check_file(files[name], name)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("profile", "points", [{"stage": 0}]),
        ("profile", "colour", 1),
        ("plan", "version", 2),
        ("plan", "choice", {}),
        ("summary", "measured", False),
        ("summary", "saving_pct", "much"),
        ("event", "total", None),
        ("event", "time", "today"),
    ],
)
def test_what_is_damaged_does_not(
    files: dict[str, Path], tmp_path: Path, name: str, key: str, value: object
) -> None:
    content = json.loads(files[name].read_text()) | {key: value}
    if value is None:
        del content[key]
    path = tmp_path / files[name].name
    path.write_text(json.dumps(content))
    with pytest.raises(jsonschema.ValidationError):
        check_file(path, name)
