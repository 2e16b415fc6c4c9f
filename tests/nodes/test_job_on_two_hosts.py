"""Two hosts x two ranks, no shared disk, names that do not resolve, clocks ten days apart: a whole job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import forget_interface, hosts
from jobs import STAGES, UNEVEN, agreed, block, happened, lines, plain_losses
from ranks import batches, build, config

pytestmark = pytest.mark.e2e


def live(rank: int, content: dict[str, Any], run_dir: Path, more: int) -> list[str]:
    """Train until rank 0 has measured what its plan saves, and a few steps more."""
    engine = build(content, stages=STAGES, inner=UNEVEN)
    forget_interface()
    data, seen, left = batches(), list[str](), 600
    measured = happened("measured")
    while left > 0:
        seen.append(float(engine.train_batch(data)).hex())
        left = min(left - 1, more) if agreed(measured(run_dir), more >= left) else left - 1
    return seen


def test_a_job_is_profiled_planned_run_and_measured() -> None:
    with hosts(days_apart=10.0) as network:
        run_dir = network.disk / "run"
        said = network.run(live, config(perseus=block(run_dir)), run_dir, 3)
        files = {
            host: sorted(path.name for path in (network.outside(host) / "run").glob("*.json"))
            for host in (0, 1)
        }
        summary = json.loads((network.outside() / "run" / "summary.json").read_text())
    losses = [one.value for one in said]
    assert losses == plain_losses(len(losses[0]))
    assert {"profile.json", "plan.json", "summary.json"} <= set(files[0])
    assert summary["measured"]
    assert files[1] == [], "a host without rank 0 needs no folder"
    assert any("10.9.0.1" in line for line in lines(said[0]))
