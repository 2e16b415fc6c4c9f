"""The rooms that the architecture page draws are those that the linter holds, in the same order."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
SAME_ROLE = {"Hooks"}
"""Names that several rooms share because each has its own of the same kind."""


@pytest.mark.parametrize(("head", "container"), [("room", "perseus_ds"), ("floor", "perseus_ds.runtime")])
def test_the_page_draws_the_layers_that_the_linter_holds(head: str, container: str) -> None:
    layers = next(c["layers"] for c in CONTRACTS if c.get("containers") == [container])

    assert _drawn(head) == [set(re.findall(r"\w+", layer)) for layer in layers]


@pytest.mark.thorough
def test_a_public_class_name_stands_for_one_idea() -> None:
    rooms = defaultdict(list)
    for path in sorted((ROOT / "perseus_ds").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                rooms[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))

    assert {name: at for name, at in rooms.items() if len(at) > 1 and name not in SAME_ROLE} == {}


def _drawn(head: str) -> list[set[str]]:
    rows = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [set(re.findall(r"`(\w+)`", row.replace(r"\|", ";").split("|")[1])) for row in rows]
