"""Megatron's own schedule over packed sequences of log-normal lengths, counted from the batches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ranks import config, run_ranks
from varied_loads import both_ways, course, was_paced_and_saves

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape, packed_simulation

import perseus_ds
from perseus_ds.profile import read_profile

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

SHAPE = Shape(pipeline=2, data=2, packed=True, settings={"variable_seq_lengths": True})
STEPS = 260
BLOCK = partial(course, simulated=packed_simulation(SHAPE.microbatches), read_ahead=True)


def trained(rank: int, content: Mapping[str, Any], steps: int) -> tuple[list[list[str]], str]:
    del rank
    job = Job(SHAPE)
    if "perseus" in content:
        perseus_ds.attach(job.schedules, config=content["perseus"])
    job.run_pass = job.schedules.get_forward_backward_func()
    return [job.step() for _ in range(steps)], job.weights()


def test_replicas_are_paced_and_save_more_without_taking_longer_or_changing_a_loss(tmp_path: Path) -> None:
    packed = both_ways(tmp_path / "packed", replicas=2, steps=STEPS, train=trained, course=BLOCK)
    plain = [one.value for one in run_ranks(SHAPE.ranks, trained, config(), STEPS)]
    assert [one.value for one in packed.with_it] == plain
    assert [one.value for one in packed.without] == plain
    for fit in read_profile(packed.run_dir / "profile.json").loads.values():
        assert fit.r2 > 0.99
        assert fit.squares > 0.0
    was_paced_and_saves(packed, more_pct=1.0)
