"""A plan that corrects itself under Megatron's own schedule: the same losses, and the saving expected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from corrected_jobs import course, is_as_expected
from jobs import agreed, give_way, happened
from ranks import run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHAPE, STEPS = Shape(pipeline=4), 600


def corrected(rank: int, config: Mapping[str, Any], run_dir: Path) -> list[list[str]]:
    """Train until it was measured."""
    job = Job(SHAPE)
    perseus_ds.attach(job.schedules, config=config)
    job.run_pass = job.schedules.get_forward_backward_func()
    losses = []
    for _ in range(STEPS):
        losses.append(job.step())
        if rank == 0:
            give_way(run_dir)
        if agreed(happened("measured")(run_dir), False):
            break
    return losses


def plain(rank: int, steps: int) -> list[list[str]]:
    del rank
    job = Job(SHAPE)
    return [job.step() for _ in range(steps)]


def test_a_job_with_feedback_trains_as_without_us_and_saves_what_it_expects(tmp_path: Path) -> None:
    said = run_ranks(SHAPE.ranks, corrected, course(tmp_path), tmp_path)
    ours = [one.value for one in said]
    assert ours == [one.value for one in run_ranks(SHAPE.ranks, plain, len(ours[0]))]
    is_as_expected(tmp_path)
