"""A launcher gives two ranks one GPU: the job logs it, trains on, and holds no clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hosts import block, fake_nvml, node_at
from jobs import STAGES, UNEVEN, lines
from ranks import batches, build, config, free_port, run_ranks

pytestmark = pytest.mark.e2e


def train(rank: int, content: dict[str, Any]) -> bool:
    fake_nvml.load()
    engine, data = build(content, stages=STAGES, inner=UNEVEN), batches()
    for _ in range(3):
        engine.train_batch(data)
    return "_exec_schedule" in vars(engine)


def test_two_ranks_on_one_gpu_are_named(tmp_path: Path) -> None:
    node, port = node_at(tmp_path), free_port()

    def enter(rank: int) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK=str(rank // 2))

    said = run_ranks(
        STAGES,
        train,
        config(perseus=block(tmp_path / "run")),
        environment=node.environment(),
        enter=enter,
    )
    assert not any(one.value for one in said)
    (line,) = lines(said[0])
    assert "off, training" in line
    assert "held by" in line
    assert node.locked_mhz() == [0] * STAGES
