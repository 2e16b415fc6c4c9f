"""DeepSpeed in fp16: iterations whose gradients overflow end without a step, and count for neither side."""

import json
from pathlib import Path

import pytest
import torch
from deepspeed.accelerator import get_accelerator
from jobs import STAGES, UNEVEN, agreed, block, names
from ranks import build, config, run_ranks

pytestmark = pytest.mark.e2e

EVERY = 7
"""Of so many batches one holds numbers whose squares fp16 cannot hold."""
MICROBATCHES = 4


def trained(rank: int, run_dir: Path, stages: int) -> int:
    type(get_accelerator()).is_fp16_supported = lambda _: True  # torch's CPU computes in it, slowly
    fp16 = {"enabled": True, "loss_scale_window": 1000}
    engine = build(
        config(MICROBATCHES, fp16=fp16, perseus=block(run_dir)), stages=stages, inner=UNEVEN[-stages:]
    )
    generator = torch.Generator().manual_seed(3)
    for iteration in range(400):
        scale = 6e4 if iteration % EVERY == EVERY - 1 else 1.0
        inputs = scale * torch.randn(2, 8, generator=generator)
        engine.train_batch(iter([(inputs.half(), torch.sin(inputs).half())] * MICROBATCHES))
        if agreed(names(run_dir).count("measured") > 1, False):
            return int(engine.skipped_steps)
    return -1


@pytest.mark.slow
def test_skipped_steps_are_counted_and_on_neither_side(tmp_path: Path) -> None:
    said = run_ranks(STAGES, trained, tmp_path, STAGES)
    skipped = {one.value for one in said}
    assert len(skipped) == 1, "all ranks skip alike"
    assert skipped.pop() > 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["facts"]["skipped_steps"] > 1
    assert abs(summary["slowdown_pct"]) < 5.0
