"""A driver that hangs in the middle of a plan: a whole job trains on, says it, and ends as it would have."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml, load
from hosts import beside, block, node_at, when
from jobs import STAGES, UNEVEN, agreed, events, lines, names, plain_losses
from ranks import Said, batches, build, config, run_ranks

from perseus_ds import detach

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HANG_S = 8.0  # longer than any wait of ours on the training thread
STUCK = 1


def _live(_rank: int, content: Mapping[str, Any]) -> tuple[list[str], int]:
    """Train until the hang is over, and a little longer; also how many batches began and ended within it."""
    load()
    engine = build(content, stages=STAGES, inner=UNEVEN)
    run_dir, data = Path(content["perseus"]["run_dir"]), batches()
    losses: list[str] = []
    within, over = 0, False
    while not over:
        hung = (run_dir / "hung").exists()
        losses.append(float(engine.train_batch(data)).hex())
        within += hung and (run_dir / "hung").exists()
        over = agreed((run_dir / "over").exists(), already=False)
    detach(engine)
    return losses, within


def _trained(node: FakeNvml, run_dir: Path) -> list[Said]:
    def hang() -> None:
        stuck = node.state.gpu[STUCK]
        time.sleep(1.0)
        (run_dir / "hung").touch()
        stuck.call_us, calls_us = int(HANG_S * 1e6), stuck.call_us
        time.sleep(HANG_S)
        stuck.call_us = calls_us
        (run_dir / "hung").unlink()
        time.sleep(2.0 * HANG_S)  # until the call that was under way has come back
        (run_dir / "over").touch()

    audit = {"every_iterations": 24, "iterations": 3}
    content = config(gradient_clipping=1.0, perseus=block(run_dir, audit=audit))
    with beside(when(lambda: (run_dir / "plan.json").exists() and "running" in names(run_dir), hang)):
        return run_ranks(STAGES, _live, content, environment=node.environment())


def test_a_driver_that_hangs_in_the_middle_of_a_plan_costs_a_line(tmp_path: Path) -> None:
    node, run_dir = node_at(tmp_path, call_us=300), tmp_path / "run"
    said = _trained(node, run_dir)
    losses = [one.value[0] for one in said]
    assert losses == plain_losses(len(losses[0]))
    assert all(one.value[1] >= 10 for one in said), "training went on while the driver hung"
    told = [event for event in events(run_dir) if event["event"] == "conflict" and event["rank"] == STUCK]
    assert {event["kind"] for event in told} == {"not_stored"}
    aloud = [line for one in said for line in lines(one) if "did not take a higher clock in time" in line]
    assert len(aloud) == 1
    assert "disabled" not in names(run_dir)
    assert node.locked_mhz() == [0] * STAGES
