"""The block's reference and its JSON Schema are what the settings are, and as strict as the reader."""

import json
from pathlib import Path

import block
import pytest

from perseus_ds.config.load import parse
from perseus_ds.errors import ConfigError

SCHEMA = json.loads(block.SCHEMA.read_text())
ROOT = Path(__file__).parents[3]

ACCEPTED = [
    {},
    {"enabled": True, "mode": "automatic", "objective": {"policy": "deadline", "deadline_s": 3}},
    {"objective": {"reserve_pct": 2.5}, "profile": {"max_clocks": None}},
    {"device": "simulated", "simulated": {"gpu": "a40", "ranks": {"3": {"gpu": "a100-sxm4-80gb"}}}},
]
REFUSED = [
    {"modus": "run"},
    {"mode": "fast"},
    {"enabled": 1},
    {"objective": {"reserve_pct": 21}},
    {"objective": {"deadline": 3}},
    {"profile": {"max_clocks": 1}},
    {"profile": {"min_window_s": 0}},
    {"straggler": {"pacing": "always"}},
    {"trace_kernels": "3"},
]


def test_page_and_schema_are_written_by_the_tool() -> None:
    text = block.PAGE.read_text()
    written = text.split(block.BEGIN)[1].split(block.END)[0]
    assert (written, SCHEMA) == (block.table(), block.schema()), "run: python scripts/docs/block.py"


def test_every_meaning_belongs_to_a_key() -> None:
    rows = block.table()
    assert [key for key in block.meanings() if f"| `{key}` |" not in rows] == []


@pytest.mark.parametrize("content", ACCEPTED, ids=str)
def test_the_schema_accepts_what_the_reader_accepts(content: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    parse(content, {})
    jsonschema.validate(content, SCHEMA)


@pytest.mark.thorough
@pytest.mark.parametrize("content", REFUSED, ids=str)
def test_the_schema_refuses_what_the_reader_refuses(content: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    with pytest.raises(ConfigError):
        parse(content, {})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)


EXAMPLES = sorted([*(ROOT / "configs").glob("*.json"), *(ROOT / "configs" / "blocks").glob("*.json")])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_schema_accepts_every_example(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    hjson = pytest.importorskip("hjson")
    content = json.loads(json.dumps(hjson.loads(file.read_text())))
    assert len(EXAMPLES) >= 10
    jsonschema.validate(content.get("perseus", content), SCHEMA)
