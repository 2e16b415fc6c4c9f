"""Every number of the block has a range: whatever lies outside is one line with the key and the range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from perseus_ds.config import PerseusConfig, load, parse, read_block
from perseus_ds.errors import ConfigError

POLICY = {"max_slowdown_pct": "max_slowdown", "deadline_s": "deadline", "power_cap_w": "power_cap"}
NUMBERS: tuple[object, ...] = (-1e308, -1e-9, 1e308, math.inf, -math.inf, math.nan)
NO_NUMBERS: tuple[object, ...] = (True, "1", [], {}, [1])


def keys(kind: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every key of the block that is no block itself, with its type."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        wanted = hints[field.name]
        if isinstance(wanted, type) and is_dataclass(wanted):
            yield from keys(wanted, (*path, field.name))
        elif field.name != "simulated":
            yield (*path, field.name), wanted


def is_number(wanted: object) -> bool:
    return "float" in str(wanted) or "int" in str(wanted)


def block_of(path: tuple[str, ...], value: object) -> dict[str, Any]:
    block: dict[str, Any] = {path[-1]: value}
    if path[-1] in POLICY:
        block["policy"] = POLICY[path[-1]]
    for name in reversed(path[:-1]):
        block = {name: block}
    return block


MALFORMED = [
    (path, value)
    for path, wanted in keys(PerseusConfig)
    for value in (NUMBERS + NO_NUMBERS if is_number(wanted) else (1.5, [], {}, math.nan))
]
CASES = [
    pytest.param(path, value, id=f"{'.'.join(path)}={value}", marks=[pytest.mark.thorough] * bool(number % 4))
    for number, (path, value) in enumerate(MALFORMED)
]


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_malformed_block_is_one_line_with_key_and_range(path: tuple[str, ...], value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        parse({"enabled": True, **block_of(path, value)}, {})
    line = str(refused.value)
    assert line.startswith(f"perseus.{'.'.join(path)} is ")
    assert "(expected " in line
    assert "\n" not in line
    assert len(line) < 250


@pytest.mark.parametrize(
    "text", ['{"perseus": {"audit": {"iterations": 1e999}}}', '{"audit": {"iterations": 1e999}}']
)
def test_a_number_beyond_all_numbers_is_one_line_that_names_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ds.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="number"):
        load(file, {}) if "perseus" in text else read_block(file)
