"""DeepSpeed jobs as people write them: unequal lengths and a deadline; preferences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from jobs import UNEVEN, agreed, events, happened
from programs import Done, block, judge
from ranks import Batches, build, config, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

MOST_STEPS, MORE, BREATH_S = 3000, 2, 0.05
MICROBATCHES, ROWS, DEADLINE_S = 4, (1, 4, 2, 3), 20.5

Step = Callable[[], list[str]]
Job = Callable[[Mapping[str, Any] | None], Step]


def of_unequal_lengths(perseus: Mapping[str, Any] | None) -> Step:
    """A pipeline whose batches are grouped by length."""
    engine, data = build(config(MICROBATCHES, perseus=perseus), stages=2, inner=UNEVEN[-2:]), grouped()

    def step() -> list[str]:
        engine.reset_activation_shape()
        return [float(engine.train_batch(data)).hex()]

    return step


def grouped() -> Batches:
    """Batches of as many rows in all microbatches of a step."""
    generator = torch.Generator().manual_seed(3)
    for rows in cycle(ROWS):
        for _ in range(MICROBATCHES):
            inputs = torch.randn(rows, 8, generator=generator)
            yield inputs, torch.sin(inputs)


def trained(rank: int, job: Job, perseus: Mapping[str, Any] | None, steps: int | None) -> list[list[str]]:
    """Train for so many steps, or until a saving was measured and a few more."""
    del rank
    step, losses = job(perseus), []
    left = MOST_STEPS if steps is None else steps
    done = happened("measured")
    while left > 0:
        losses.append(step())
        left -= 1
        if steps is None and left > MORE:
            assert perseus is not None
            time.sleep(BREATH_S)
            left = MORE if agreed(done(Path(perseus["run_dir"])), already=False) else left
    return losses


def run(ranks: int, job: Job, perseus: Mapping[str, Any] | None, steps: int | None = None) -> Done:
    """Run a job in processes of its own."""
    said = run_ranks(ranks, trained, job, perseus, steps)
    journal = [] if perseus is None else events(Path(perseus["run_dir"]))
    losses = [list(chain.from_iterable(one.value)) for one in said]
    return Done("".join(one.output for one in said), losses, len(said[0].value), journal)


def test_a_deadline_is_met_by_batches_of_unequal_lengths(tmp_path: Path) -> None:
    """Windows hold batches of every length: a profile, and so the deadline, is for the mean of those seen."""
    objective = {"policy": "deadline", "deadline_s": DEADLINE_S}
    profile = {"max_clocks": 4, "warmup_iterations": 2, "min_window_s": 60.0}
    served = run(2, of_unequal_lengths, block(tmp_path / "run", objective=objective, profile=profile))
    judge(served, run(2, of_unequal_lengths, None, served.steps), most_slowdown_pct=1000.0)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["perseus"]["iteration_time_s"] <= 1.02 * DEADLINE_S
    assert any(one["event"] == "sizes_differ" for one in served.events)
