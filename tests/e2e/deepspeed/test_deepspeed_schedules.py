"""Whole jobs under other schedules than 1F1B: profiled, planned, run and measured, losses untouched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed_hosts import dualpipe_v, preference, users_own
from jobs import block, events, lines
from ranks import batches, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MOST_STEPS = 400
Build = Callable[..., PipelineEngine]


def until_measured(rank: int, build: Build, perseus: Mapping[str, Any] | None, steps: int) -> list[str]:
    """Train until a saving was measured, or so many steps without us."""
    engine, data = build(2, perseus=perseus), batches()
    losses: list[str] = []
    while len(losses) < steps:
        losses.append(float(engine.train_batch(data)).hex())
        if perseus is None:
            continue
        names = [one["event"] for one in events(Path(perseus["run_dir"]))]
        done = torch.tensor(int(rank == 0 and "measured" in names))
        torch.distributed.broadcast(done, 0)
        if done:
            return losses
    return losses


@pytest.mark.parametrize(
    "build",
    [dualpipe_v, users_own, preference],
    ids=["DualPipe-V", "a user's own schedule", "two transfers for each microbatch"],
)
def test_a_job_is_profiled_planned_run_and_measured(tmp_path: Path, build: Build) -> None:
    said = run_ranks(2, until_measured, build, block(tmp_path), MOST_STEPS)
    names = [one["event"] for one in events(tmp_path)]
    assert "measured" in names, lines(said[0])
    count = len(said[0].value)
    assert 0 < count < MOST_STEPS
    plain = run_ranks(2, until_measured, build, None, 8)
    assert [one.value[:8] for one in said] == [one.value for one in plain]
