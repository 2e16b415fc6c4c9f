"""Options of the commands do what their help says."""

import csv
import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.plan import read_plans

SIZES = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70)


def clocks(perseus: Program, profile: Path, *words: object) -> list[list[tuple[float, int]]]:
    """Start and clock of each computation of the fastest plan, by stage, in running order."""
    plan = profile.with_name("budget.json")
    assert perseus("plan", profile, *SIZES, *words, "--output", plan).code == 0
    rows = csv.DictReader(io.StringIO(perseus("show", plan, "--format", "csv").out))
    found: list[list[tuple[float, int]]] = [[], []]
    for row in rows:
        found[int(row["stage"])].append((float(row["start_s"]), int(row["clock_mhz"])))
    return [sorted(one) for one in found]


def changes(row: list[tuple[float, int]]) -> int:
    """Changes of clock from one iteration into the next included."""
    return sum(one != other for (_, one), (_, other) in pairwise([*row, row[0]]))


ITERATION_S = 0.69


@pytest.mark.thorough
@pytest.mark.parametrize("per_s", [0, pytest.param(3, marks=pytest.mark.slow), 6])
def test_a_gpu_changes_its_clock_at_most_so_often(perseus: Program, profile_csv: Path, per_s: int) -> None:
    rows = clocks(perseus, profile_csv, "--set", f"changes_per_s={per_s}")
    assert max(map(changes, rows)) <= per_s * ITERATION_S
    assert max(map(changes, clocks(perseus, profile_csv, "--set", "split=never"))) > 6 * ITERATION_S - 2


@pytest.mark.thorough
def test_the_gpus_of_a_node_share_their_changes(perseus: Program, profile_csv: Path) -> None:
    for gpus in (1, 2):
        rows = clocks(perseus, profile_csv, "--set", "node_changes_per_s=3", "--set", f"gpus_per_node={gpus}")
        budget = read_plans(profile_csv.with_name("budget.json")).budget
        assert budget is not None
        assert (budget.per_node_per_s, budget.gpus_per_node) == (3.0, gpus)
        together = [sum(map(changes, rows))] if gpus == len(rows) else list(map(changes, rows))
        assert max(together) <= 3 * ITERATION_S


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
