"""Write the reference of the block and its JSON Schema, both from the settings themselves.

Run: ``python scripts/docs/block.py``. Meanings stand in ``meanings.toml``; a test keeps both files true.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pydantic

from perseus_ds.config import PerseusConfig
from perseus_ds.device.simulated.settings import SimulatedSettings

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "block.md"
SCHEMA = ROOT / "docs" / "reference" / "schemas" / "block.schema.json"
BEGIN, END = "<!-- written by scripts/docs/block.py -->\n", "<!-- end -->"

Json = dict[str, object]


def main() -> None:
    """Write both files."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN, 1)
    PAGE.write_text(head + BEGIN + table() + END + rest.split(END, 1)[1])
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")


@cache
def meanings() -> dict[str, str]:
    """Read the meaning of every key, by its full name."""
    content = tomllib.loads(Path(__file__).with_name("meanings.toml").read_text())
    return dict(_flat(content, ""))


def _flat(content: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)


@cache
def schema() -> Json:
    """Build the block's JSON Schema: pydantic's, as strict as the reader."""
    whole = _schema_of(PerseusConfig, "")
    parts = whole["properties"]
    assert isinstance(parts, dict)
    simulated = _schema_of(SimulatedSettings, "simulated.")
    rank = {"type": "object", "properties": simulated["properties"], "additionalProperties": False}
    parts["simulated"] = simulated | {
        "properties": simulated["properties"]
        | {"ranks": {"description": "What differs on some ranks.", "additionalProperties": rank}}
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "perseus",
        "description": "The block of perseus_ds in a DeepSpeed JSON, or the file that PERSEUS_CONFIG names.",
        **whole,
    }


def _schema_of(kind: type[object], prefix: str) -> Json:
    content = pydantic.TypeAdapter(kind).json_schema()
    properties = {}
    for field in fields(kind):  # type: ignore[arg-type]  # records are dataclasses
        own = content["properties"][field.name]
        own.pop("title", None)
        if "$ref" in own:
            section = type(getattr(kind(), field.name))
            properties[field.name] = _schema_of(section, f"{prefix}{field.name}.")
        elif f"{prefix}{field.name}" != "simulated":
            properties[field.name] = {"description": _meaning(prefix + field.name)} | own
        else:
            properties[field.name] = {}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _meaning(key: str) -> str:
    known = meanings()
    if key not in known:
        raise SystemExit(f"scripts/docs/meanings.toml has no line for {key}: write what it does")
    return known[key]


def table() -> str:
    """Lay the keys out as Markdown, a table per section."""
    config = PerseusConfig()
    tables = [
        _table("", [f.name for f in fields(config) if not _is_section(getattr(config, f.name))], config)
    ]
    for field in fields(config):
        section = getattr(config, field.name)
        if is_dataclass(section):
            tables.append(_table(f"{field.name}.", [f.name for f in fields(section)], section))
    tables.append(_simulated())
    return "\n".join(tables) + "\n"


def _simulated() -> str:
    """Lay out the simulated device's keys, whose types and bounds the schema states."""
    default = SimulatedSettings()
    rows = [
        f"| `{key}` | `{json.dumps(getattr(default, name))}` | {_meaning(key)} |"
        for name in (field.name for field in fields(default))
        for key in [f"simulated.{name}"]
    ]
    return "\n".join(["", "## `simulated`", "", "| key | default | meaning |", "|---|---|---|", *rows])


def _is_section(value: object) -> bool:
    return is_dataclass(value) or isinstance(value, dict)


def _table(prefix: str, names: list[str], record: object) -> str:
    rows = [_row(prefix + name, getattr(record, name)) for name in names]
    title = f"## `{prefix[:-1]}`" if prefix else "## The block itself"
    return "\n".join(["", title, "", "| key | values | default | meaning |", "|---|---|---|---|", *rows])


def _row(key: str, default: object) -> str:
    return f"| `{key}` | {_values(_of(schema(), key))} | `{json.dumps(default)}` | {_meaning(key)} |"


def _of(found: Mapping[str, object], key: str) -> Mapping[str, object]:
    for part in key.split("."):
        found = found["properties"][part]  # type: ignore[index]
    return found


def _values(own: Mapping[str, object]) -> str:
    choices = own.get("anyOf", [own])
    assert isinstance(choices, list)
    return " or ".join(filter(None, map(_choice, choices)))


def _choice(one: Mapping[str, object]) -> str:
    if "enum" in one:
        values = one["enum"]
        assert isinstance(values, list)
        return ", ".join(f"`{value}`" for value in values)
    if "const" in one:
        return f"`{one['const']}`"
    return {"null": "", "array": "list", "boolean": "true, false", "string": "text"}.get(
        str(one.get("type")), _number(one)
    )


def _number(one: Mapping[str, object]) -> str:
    noun = "integer" if one.get("type") == "integer" else "number"
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    return " ".join([noun, *(f"{word} {one[bound]:g}" for bound, word in words.items() if bound in one)])


if __name__ == "__main__":
    main()
