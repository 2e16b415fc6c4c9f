"""The rooms that the architecture page draws are those that the linter holds, in the same order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize(("head", "container"), [("room", "perseus_ds"), ("floor", "perseus_ds.runtime")])
def test_the_page_draws_the_layers_that_the_linter_holds(head: str, container: str) -> None:
    layers = next(c["layers"] for c in CONTRACTS if c.get("containers") == [container])

    assert _drawn(head) == [set(re.findall(r"\w+", layer)) for layer in layers]


def _drawn(head: str) -> list[set[str]]:
    rows = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [set(re.findall(r"`(\w+)`", row.replace(r"\|", ";").split("|")[1])) for row in rows]
