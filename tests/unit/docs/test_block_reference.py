"""The block's reference and the JSON Schemas are what the package reads and writes, and as strict."""

import json
from pathlib import Path

import block
import jsonschema
import pytest
from cli_program import check_file
from schedules import two_plans
from table_cases import BLOCKS

from perseus_ds.config.load import parse
from perseus_ds.errors import ConfigError
from perseus_ds.plan import write_plans
from perseus_ds.profile import read_profile, write_profile
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.records import MeasuredSide, Summary, write_summary

SCHEMA = json.loads(block.SCHEMA.read_text())

MORE = [
    {"objective": {"reserve_pct": 2.5}, "profile": {"max_clocks": None}},
    {"simulated": {"gpu": "a40", "ranks": {"3": {"gpu": "a100-sxm4-80gb"}}}},
    {"objective": {"reserve_pct": 21}},
    {"straggler": {"pacing": "always"}},
    {"trace_kernels": "3"},
]
BEYOND_A_SCHEMA = {"objective": {"policy": "deadline"}}
"""Conditions that one key sets for another."""


def test_page_and_schema_are_written_by_the_tool_and_every_meaning_belongs_to_a_key() -> None:
    written = block.PAGE.read_text().split(block.BEGIN)[1].split(block.END)[0]
    assert (written, SCHEMA) == (block.table(), block.schema()), "run: python scripts/docs/block.py"
    rows = block.table()
    assert [key for key in block.meanings() if f"| `{key}` |" not in rows] == []


@pytest.mark.parametrize("content", [*BLOCKS, *MORE], ids=str)
def test_the_schema_is_as_strict_as_the_reader(content: dict[str, object]) -> None:
    try:
        parse(content, {})
    except ConfigError:
        if content != BEYOND_A_SCHEMA:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(content, SCHEMA)
    else:
        jsonschema.validate(content, SCHEMA)


# Files that the package writes keep to the schemas; damaged ones do not.

PROFILE = Path(__file__).parents[3] / "docs" / "examples" / "profile.csv"


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
