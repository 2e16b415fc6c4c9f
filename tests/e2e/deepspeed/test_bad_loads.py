"""Loads that are wrong, or explain nothing: one line, and training as without us."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import block, events, lines, names
from ranks import batches, build, config, run_ranks
from varied_loads import SIMULATED, lengths_of

import perseus_ds
from perseus_ds.runtime import user_loads
from perseus_ds.runtime.user_loads import LoadFunction

pytestmark = pytest.mark.e2e

STEPS = 8


def trained(
    rank: int, content: Mapping[str, Any], steps: int, given: Mapping[int, LoadFunction]
) -> list[str]:
    """Two stages; ``given`` are the functions of ranks."""
    if rank in given:
        user_loads.LIMIT_S = 60.0  # other work may hold this host up
        perseus_ds.set_load(given[rank])
    engine, data = build(content, stages=2), batches()
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


def later(iteration: int, microbatches: int) -> object:
    return [5.0] * microbatches if iteration < 2 else {}["lengths"]


def good(iteration: int, microbatches: int) -> object:
    return [5.0 + iteration] * microbatches


WRONG = {
    "raises": ({0: good, 1: later}, "the function of set_load on rank 1 raised KeyError('lengths')"),
    "missing on a rank": ({1: good}, "set_load was called on 1 of 2 ranks, not on rank 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_function_that_fails_on_a_rank_is_one_line(tmp_path: Path, case: str) -> None:
    given, why = WRONG[case]
    run_dir = tmp_path / "run"
    content = config(perseus=block(run_dir, mode="observe"))
    said = run_ranks(2, trained, content, STEPS, given)
    assert [why in line for one in said for line in lines(one)].count(True) == 1
    assert "disabled" not in names(run_dir)
    assert [one.value for one in said] == [one.value for one in run_ranks(2, trained, config(), STEPS, {})]


def named_on_rank_0(rank: int, content: Mapping[str, Any], folder: str) -> list[str]:
    if rank == 0:
        sys.path.insert(0, folder)
    return trained(rank, content, STEPS, {})


def test_a_name_that_leads_nowhere_on_one_rank_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "lengths_of_rank_0.py").write_text("def loads(iteration, microbatches): return [1]")
    straggler = {"loads": "lengths_of_rank_0.loads"}
    content = config(perseus=block(tmp_path / "run", mode="observe", straggler=straggler))
    said = run_ranks(2, named_on_rank_0, content, str(tmp_path))
    assert sum("rank 1: perseus.straggler.loads" in line for line in lines(said[0])) == 1
    assert lines(said[1]) == []
    assert [one.value for one in said] == [one.value for one in run_ranks(2, trained, config(), STEPS, {})]


@pytest.mark.slow
def test_loads_that_explain_nothing_are_named_once_and_change_nothing(tmp_path: Path) -> None:
    """Every microbatch takes as long as any other, whatever its load."""
    run_dir = tmp_path / "run"
    simulated = {**SIMULATED, "load_terms": [1.0, 0.0, 0.0]}
    content = config(perseus=block(run_dir, simulated=simulated))
    lengths = lengths_of(0)
    said = run_ranks(2, trained, content, 90, {0: lengths, 1: lengths})
    named = "% at most of how durations vary: nothing is held against them"
    assert [named in line for line in lines(said[0])].count(True) == 1
    assert not {"disabled", "straggler", "contradicted", "slower"} & set(names(run_dir))
    measured = [one for one in events(run_dir) if one["event"] == "measured"]
    assert measured
    assert abs(measured[-1]["slowdown_pct"]) < 0.5
