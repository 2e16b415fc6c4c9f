"""Training with the plugin is training without it, to the last bit of every loss."""

from pathlib import Path
from typing import Any

import pytest
from jobs import Lifecycle, block, happened, names, plain_losses, train, train_until
from ranks import config, run_ranks

pytestmark = pytest.mark.e2e


def test_over_the_full_course_of_four_stages(lifecycle: Lifecycle) -> None:
    ours = [said.value.losses for said in lifecycle.said]
    assert ours == plain_losses(len(ours[0]))


def test_of_two_stages_by_two_replicas_in_bf16_with_zero_1(tmp_path: Path) -> None:
    precision: dict[str, Any] = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
    with_us = config(perseus=block(tmp_path, mode="profile"), gradient_clipping=1.0, **precision)
    without = config(gradient_clipping=1.0, **precision)
    ours = [said.value.losses for said in run_ranks(4, train_until, with_us, 2, happened("profiled"))]
    assert "profiled" in names(tmp_path)
    assert ours == [said.value.losses for said in run_ranks(4, train, without, 2, len(ours[0]))]
