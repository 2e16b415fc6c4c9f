"""Small profiles, and what a call of the program and a recorded iteration leave."""

import base64
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.clock_requests import Played
from perseus_ds.profile import Point
from perseus_ds.run_directory.records import RecordedIteration, Span

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


BLOCKING_W = 70.0


def points(time_s: float) -> tuple[Point, ...]:
    """A computation at five clocks: time grows slower than the clock falls, power with about its square."""
    return tuple(
        Point(mhz, time_s * (0.2 + 0.8 * 1410 / mhz), time_s * (90 + 260 * (mhz / 1410) ** 3))
        for mhz in (1410, 1290, 1170, 1050, 930)
    )


def recorded(
    name: str, played: list[Played], iteration_time_s: float, **more: tuple[int, ...]
) -> RecordedIteration:
    """A plan's iteration as a job records it; ``more``: the rank of each stage."""
    spans = tuple(
        Span(p.instruction, p.start_s, p.duration_s, p.clock_mhz, p.energy_j / p.duration_s) for p in played
    )
    return RecordedIteration(name, iteration_time_s, BLOCKING_W, simulated=True, spans=spans, **more)


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


Program = Callable[..., Answer]
Refused = Callable[..., str]
"""Calls the program, expects one line of refusal, returns it."""
WriteRun = Callable[..., Path]
"""Writes the named parts of a run into a directory of the test's own."""

# Validate the files of a job against the schemas of the documentation.

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


def check_file(path: Path, name: str) -> None:
    """Refuse a file, or a line of a ``.jsonl``, that does not keep to the schema ``name``."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for text in texts:
        jsonschema.validate(json.loads(text), schema)


# What a report's page holds for its figures, read back as its script reads it.


def page_data(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


def unpacked(column: Mapping[str, str]) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(column["packed"])), "<" + column["as"])
