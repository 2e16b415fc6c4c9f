"""Every key's default is the one that the reference page promises, and no key is missing there."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from perseus_ds.config import PerseusConfig

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "block.md"
ROW = re.compile(r"^\| `(?P<key>[\w.]+)` \| [^|]* \| (?:`(?P<default>[^`]*)`)? ?\|", re.MULTILINE)


def defaults(block: object, path: str = "") -> Iterator[tuple[str, object]]:
    for field in fields(block):
        value = getattr(block, field.name)
        if is_dataclass(value):
            yield from defaults(value, f"{path}{field.name}.")
        elif field.name != "simulated":
            yield path + field.name, value


def test_defaults_are_those_of_the_reference() -> None:
    said = {
        row["key"]: None if row["default"] is None else json.loads(row["default"])
        for row in ROW.finditer(PAGE.read_text())
        if not row["key"].startswith("simulated.")
    }
    assert said == dict(defaults(PerseusConfig()))
