"""A megatron-core job on two hosts without a shared disk: a whole course, and the losses of one host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import forget_interface, hosts
from jobs import agreed, block, lines, names
from ranks import run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHAPE = Shape(4, microbatches=4, layers_per_chunk=1)
MOST = 600


@dataclass(frozen=True)
class Trained:
    """The exact losses of every step, and what the weights became."""

    losses: list[list[str]]
    weights: str


def train(rank: int, perseus: Mapping[str, Any] | None, run_dir: Path, steps: int) -> Trained:
    job, losses = Job(SHAPE), list[list[str]]()
    if perseus is not None:
        perseus_ds.attach(job.schedules, config=perseus)
        job.run_pass = job.schedules.get_forward_backward_func()
        forget_interface()
    over = False
    while not over:
        losses.append(job.step())
        over = len(losses) >= steps
        if perseus is not None:
            over = agreed(over or (rank == 0 and "measured" in names(run_dir)), already=False)
    return Trained(losses, job.weights())


def test_a_megatron_job_is_profiled_planned_run_and_measured() -> None:
    with hosts(days_apart=10.0) as network:
        run_dir = network.disk / "run"
        said = network.run(train, block(run_dir), run_dir, MOST)
        left = [
            sorted(file.name for file in (network.outside(host) / "run").glob("*.json")) for host in (0, 1)
        ]
        summary = json.loads((network.outside() / "run" / "summary.json").read_text())
    steps = len(said[0].value.losses)
    assert [one.value for one in said] == [one.value for one in run_ranks(4, train, None, run_dir, steps)]
    assert {"profile.json", "plan.json", "summary.json"} <= set(left[0])
    assert summary["measured"]
    assert left[1] == [], "a host without rank 0 needs no folder"
    assert any("10.9.0.1" in line for line in lines(said[0]))
