"""Whole jobs without a pipeline: profiled, planned and run through the check that every new engine passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deepspeed_hosts import ZeroHost, zero_engine
from jobs import agreed, block, events, happened, lines
from ranks import run_ranks

pytestmark = pytest.mark.e2e

MOST_STEPS = 400


def until_measured(rank: int, stage: int, perseus: Mapping[str, Any]) -> int:
    host, measured = ZeroHost(zero_engine(stage, microbatches=1, perseus=perseus)), happened("measured")
    for step in range(MOST_STEPS):
        host.train()
        if agreed(measured(Path(perseus["run_dir"]))):
            return step
    raise AssertionError(f"nothing measured in {MOST_STEPS} steps")


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (1, 2, 3))])
def test_a_job_without_accumulation_whose_iterations_are_long_is_measured(tmp_path: Path, stage: int) -> None:
    """A tenth slower for less energy; a window holds two runs of each computation, on each replica."""
    slower = {"policy": "max_slowdown", "max_slowdown_pct": 10.0}
    perseus = block(tmp_path, objective=slower, simulated={"mean_forward_s": 1.0})
    said = run_ranks(2, until_measured, stage, perseus)
    measured = next(one for one in events(tmp_path) if one["event"] == "measured")
    assert measured["saving_pct"] > 3.0
    assert ["1 microbatch;" in line for line in lines(said[0])].count(True) == 1
    points = json.loads((tmp_path / "profile.json").read_text())["points"]
    assert min(point["samples"] for point in points) == 4
    assert not [one for one in events(tmp_path) if one["event"] == "window_too_short"]


def observed(rank: int, stage: int, perseus: Mapping[str, Any]) -> None:
    host = ZeroHost(zero_engine(stage, perseus=perseus))
    for _ in range(4):
        host.train()


@pytest.mark.parametrize(("stage", "what"), [(1, "objective.policy"), (3, "stragglers")])
def test_what_cannot_be_done_is_said_at_the_start(tmp_path: Path, stage: int, what: str) -> None:
    said = run_ranks(2, observed, stage, block(tmp_path, mode="observe"))
    assert [what in line for line in lines(said[0])].count(True) == 1
