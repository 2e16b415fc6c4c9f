"""A small profile in the Zeus format, and what a call of the program leaves."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

CSV = """stage,instruction,frequency,time,energy
0,forward,1400,0.05,15
0,forward,1200,0.055,12
0,forward,1000,0.065,11
0,backward,1400,0.10,30
0,backward,1200,0.11,24
0,backward,1000,0.13,22
1,forward,1400,0.06,18
1,forward,1200,0.066,14.4
1,forward,1000,0.078,13
1,backward,1400,0.12,36
1,backward,1200,0.132,29
1,backward,1000,0.156,26
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call of the program left."""

    code: int
    out: str
    err: str


Program = Callable[..., Answer]

# Validate the files of a job against the schemas of the documentation.

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


def check_file(path: Path, name: str) -> None:
    """Refuse a file, or a line of a ``.jsonl``, that does not keep to the schema ``name``."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)


# What a report's page holds for its figures, read back as its script reads it.


def page_data(page: str) -> dict[str, Any]:
    """The numbers inside a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    content: dict[str, Any] = json.loads(found)
    return content


def unpacked(column: Mapping[str, str]) -> NDArray[Any]:
    """A column as numbers."""
    return np.frombuffer(zlib.decompress(base64.b64decode(column["packed"])), "<" + column["as"])
