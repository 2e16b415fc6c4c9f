"""Validate the files of a job against the schemas of the documentation."""

import json
from pathlib import Path

import pytest

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


def check_file(path: Path, name: str) -> None:
    """Refuse a file, or a line of a ``.jsonl``, that does not keep to the schema ``name``."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
