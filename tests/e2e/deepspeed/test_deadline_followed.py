"""Batches grow after the profile: the deadline is missed, the job says so and runs a plan that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from jobs import UNEVEN, block, lines
from ranks import Batches, build, config, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, STEPS, MICROBATCHES = 2, 64, 4
GROWN_AFTER, ROWS, MORE_ROWS = 20, 6, 7
DEADLINE_S = 10.0


def growing() -> Batches:
    """Microbatches of six rows, then of seven."""
    generator = torch.Generator().manual_seed(3)
    step = 0
    while True:
        for _ in range(MICROBATCHES):
            inputs = torch.randn(MORE_ROWS if step >= GROWN_AFTER else ROWS, 8, generator=generator)
            yield inputs, torch.sin(inputs)
        step += 1


def trained(rank: int, content: Mapping[str, Any]) -> None:
    del rank
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), growing()
    for _ in range(STEPS):
        engine.reset_activation_shape()
        engine.train_batch(data)


def test_a_deadline_is_followed_when_batches_grow(tmp_path: Path) -> None:
    objective = {"policy": "deadline", "deadline_s": DEADLINE_S}
    said = run_ranks(STAGES, trained, config(perseus=block(tmp_path, objective=objective)))
    missed = [line for line in lines(said[0]) if "deadline of 10 s is missed" in line]
    assert missed
    assert "is to keep it from here on" in missed[0]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    first, *others = [event for event in events if event["event"] == "running"]
    assert first["iteration_time_s"] <= DEADLINE_S
    assert others[-1]["iteration_time_s"] < first["iteration_time_s"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["perseus"]["iteration_time_s"] <= 1.01 * DEADLINE_S
