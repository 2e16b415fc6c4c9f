"""The block's reference and its JSON Schema are what the settings are, and as strict as the reader."""

import json

import block
import pytest
from table_cases import BLOCKS

from perseus_ds.config.load import parse
from perseus_ds.errors import ConfigError

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
    text = block.PAGE.read_text()
    written = text.split(block.BEGIN)[1].split(block.END)[0]
    assert (written, SCHEMA) == (block.table(), block.schema()), "run: python scripts/docs/block.py"
    rows = block.table()
    assert [key for key in block.meanings() if f"| `{key}` |" not in rows] == []


@pytest.mark.parametrize("content", [*BLOCKS, *MORE], ids=str)
def test_the_schema_is_as_strict_as_the_reader(content: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    try:
        parse(content, {})
    except ConfigError:
        if content != BEYOND_A_SCHEMA:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(content, SCHEMA)
    else:
        jsonschema.validate(content, SCHEMA)
