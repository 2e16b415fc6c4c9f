"""Options of the commands do what their help says."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ("show", "PLAN", "--power", "--plan", 0),
        ("show", "PLAN", "--power", "--graph", "graph.dot"),
        ("show", "PLAN", "--power", "--min-energy"),
        ("show", "PLAN", "--power", "--max-slowdown", 0),
        ("kernels", "trace", "--run-dir", "R", "-o", "out.json", "--iterations", 3),
        ("kernels", "show", "KERNELS", "--json", "--classes", 3),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_an_option_that_would_do_nothing_is_refused(
    refused: Callable[..., str], plan_file: Path, profile_csv: Path, words: tuple[object, ...]
) -> None:
    files = {"PLAN": plan_file, "PROFILE": profile_csv}
    flag = next(word for word in reversed(words) if str(word).startswith("--"))
    assert str(flag) in refused(*(files.get(str(word), word) for word in words))
