"""Every key's default is the one that the reference page promises, and no key is missing there."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from perseus_ds.config import PerseusConfig, parse
from perseus_ds.errors import ConfigError

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


EDGES: dict[str, tuple[float, float]] = {
    "trace_kernels": (0, 100),
    "objective.reserve_pct": (0.0, 20.0),
    "objective.max_slowdown_pct": (1e-9, 1000.0),
    "objective.deadline_s": (1e-9, 1e6),
    "objective.power_cap_w": (1e-9, 1e9),
    "profile.min_window_s": (1e-9, 86_400.0),
    "profile.max_clocks": (2, 1000),
    "profile.warmup_iterations": (1, 10_000),
    "profile.settle_s": (0.0, 3600.0),
    "audit.every_iterations": (0, 1_000_000_000),
    "audit.iterations": (1, 1000),
    "audit.settle_s": (0.0, 3600.0),
}
POLICY = {"max_slowdown_pct": "max_slowdown", "deadline_s": "deadline", "power_cap_w": "power_cap"}


@pytest.mark.parametrize("key", EDGES)
def test_the_edges_of_a_range_are_inside_and_no_more(key: str) -> None:
    section, _, name = key.rpartition(".")

    def read(value: float) -> object:
        block = {name: value} | ({"policy": POLICY[name]} if name in POLICY else {})
        found = parse({section: block} if section else block, {})
        return getattr(getattr(found, section) if section else found, name)

    least, most = EDGES[key]
    assert (read(least), read(most)) == (least, most)
    for outside in (-1e-9 if least == 1e-9 else least - 1, most + 1):
        with pytest.raises(ConfigError, match=name):
            read(outside)
