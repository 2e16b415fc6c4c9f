"""``perseus-ds plan`` with chunks and split backwards, and sizes and profiles that do not fit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import CSV, Program

SPLIT = CSV.replace("backward", "backward_input") + "\n".join(
    row.replace("backward", "backward_weight") for row in CSV.splitlines() if "backward" in row
)


@pytest.fixture
def split_csv(tmp_path: Path) -> Path:
    path = tmp_path / "split.csv"
    path.write_text(SPLIT + "\n")
    return path


def test_two_stages_on_one_gpu(perseus: Program, split_csv: Path, tmp_path: Path) -> None:
    words = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70, "--schedule", "zbv")
    answer = perseus("plan", split_csv, *words, "--json", "-o", tmp_path / "plan.json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert (found["stages"], found["ranks"]) == (2, 1)
    assert found["t_min_s"] == pytest.approx(3 * (0.05 + 0.06 + 2 * (0.10 + 0.12)))  # one GPU does it all
    table = perseus("show", tmp_path / "plan.json").out.splitlines()
    assert [row.split()[0] for row in table if "stage 1" in row] == ["F", "I", "W"]


REFUSED = {
    "whole backwards, but the schedule splits them": (
        ("--schedule", "zbv"),
        "the profile has no backward input of stage 1",
    ),
    "one chunk too many": (
        ("--schedule", "interleaved", "--set", "chunks=3"),
        "2 stages do not fill ranks of 3",
    ),
    "chunks where there are none": (("--set", "chunks=2"), "1f1b with 2 chunks on every rank does not exist"),
    "a group where there is none": (("--set", "group=2"), "1f1b has no groups of microbatches"),
    "too few microbatches": (("--schedule", "dualpipe-v", "--set", "chunks=1"), "dualpipe-v with 1 chunks"),
}


@pytest.mark.parametrize(("words", "why"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    words: tuple[object, ...], why: str, refused: Callable[..., str], profile_csv: Path
) -> None:
    assert why in refused("plan", profile_csv, "--stages", 2, "--microbatches", 3, *words)
