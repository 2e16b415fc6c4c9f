"""Whole jobs without a pipeline: profiled, planned and run through the check that every new engine passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from deepspeed_hosts import ZERO_MICROBATCHES, ZeroHost, zero_engine
from jobs import block, events, lines, watched_gpus
from ranks import Said, run_ranks

pytestmark = pytest.mark.e2e

MOST_STEPS = 400
SLOWER: dict[str, Any] = {"objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0}}


def trained(
    rank: int, stage: int, perseus: Mapping[str, Any] | None, steps: int
) -> tuple[list[list[str]], str, int]:
    """Train so many steps, and say what was lost, what was learned and how often a clock was asked for."""
    gpus = watched_gpus()
    host = ZeroHost(zero_engine(stage, perseus=perseus))
    losses = [list(host.train()) for _ in range(steps)]
    return losses, host.weights(), gpus.locks


def until_measured(
    rank: int, stage: int, perseus: Mapping[str, Any], microbatches: int = ZERO_MICROBATCHES
) -> int:
    """Train until a saving was measured; return after how many steps."""
    host = ZeroHost(zero_engine(stage, microbatches=microbatches, perseus=perseus))
    run_dir = Path(perseus["run_dir"])
    for step in range(MOST_STEPS):
        host.train()
        done = torch.tensor(int(rank == 0 and any(one["event"] == "measured" for one in events(run_dir))))
        torch.distributed.broadcast(done, 0)
        if done:
            return step
    raise AssertionError(f"nothing measured in {MOST_STEPS} steps")


def said_once(said: list[Said], what: str) -> bool:
    return sum(what in line for line in lines(said[0])) == 1


def test_a_job_is_profiled_planned_run_and_measured(tmp_path: Path) -> None:
    """A tenth slower for less energy: what a pipeline of one rank can do."""
    perseus = block(tmp_path, **SLOWER)
    said = run_ranks(2, until_measured, 1, perseus)
    measured = next(one for one in events(tmp_path) if one["event"] == "measured")
    assert measured["saving_pct"] > 3.0
    assert said_once(said, "3 microbatches")


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (1, 2, 3))])
def test_a_job_without_accumulation_whose_iterations_are_long_is_served_too(
    tmp_path: Path, stage: int
) -> None:
    """A window holds two runs of each computation there, on each of the two replicas."""
    perseus = block(tmp_path, **SLOWER, simulated={"mean_forward_s": 1.0})
    said = run_ranks(2, until_measured, stage, perseus, 1)
    measured = next(one for one in events(tmp_path) if one["event"] == "measured")
    assert measured["saving_pct"] > 3.0
    assert said_once(said, "1 microbatch;")
    points = json.loads((tmp_path / "profile.json").read_text())["points"]
    assert min(point["samples"] for point in points) == 4
    assert not [one for one in events(tmp_path) if one["event"] == "window_too_short"]


def test_losses_and_weights_are_as_without_us(tmp_path: Path) -> None:
    steps = 12
    said = run_ranks(2, trained, 2, block(tmp_path, **SLOWER), steps)
    plain = run_ranks(2, trained, 2, None, steps)
    for ours, theirs in zip(said, plain, strict=True):
        assert ours.value[:2] == theirs.value[:2]
        assert ours.value[2] > 0
        assert theirs.value[2] == 0


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        (1, "objective.policy"),
        (3, "stragglers"),
    ],
)
def test_what_cannot_be_done_is_said_at_the_start(tmp_path: Path, stage: int, what: str) -> None:
    said = run_ranks(2, trained, stage, block(tmp_path, mode="observe"), 4)
    assert said_once(said, what)
