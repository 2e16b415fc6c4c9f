"""Megatron's own schedules, two stages and two replicas, with microbatches of log-normal lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import block, lines
from ranks import Said, run_ranks
from varied_loads import SIMULATED, lengths_of

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron.core import parallel_state
from megatron_jobs import Job, Shape

import perseus_ds
from perseus_ds.profile import read_profile

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHAPE = Shape(pipeline=2, data=2)
STEPS = 120


@dataclass(frozen=True)
class Trained:
    losses: list[list[str]]
    weights: str


def trained(rank: int, config: Mapping[str, Any] | None) -> Trained:
    del rank
    job = Job(SHAPE)
    if config is not None:
        perseus_ds.attach(job.schedules, config=config)
        perseus_ds.set_load(lengths_of(parallel_state.get_data_parallel_rank()))
    job.run_pass = job.schedules.get_forward_backward_func()
    return Trained([job.step() for _ in range(STEPS)], job.weights())


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("megatron_loads")
    course = block(
        run_dir,
        simulated=SIMULATED,
        profile={"min_window_s": 10.0, "max_clocks": 3, "warmup_iterations": 2},
        straggler={"loads": "read_ahead"},
    )
    return run_dir, run_ranks(SHAPE.ranks, trained, course)


def test_losses_and_weights_are_those_without_us(varied: tuple[Path, list[Said]]) -> None:
    """Also with the data iterator read ahead."""
    assert [one.value for one in varied[1]] == [one.value for one in run_ranks(SHAPE.ranks, trained, None)]


def test_the_profile_finds_what_loads_cost_on_every_stage(varied: tuple[Path, list[Said]]) -> None:
    profile = read_profile(varied[0] / "profile.json")
    assert {stage for stage, _ in profile.loads} == {0, 1}
    for fit in profile.loads.values():
        assert fit.r2 > 0.99
        assert (fit.base, fit.tokens, fit.squares) == pytest.approx(SIMULATED["load_terms"], abs=0.1)
    said = lines(varied[1][0])
    assert any("loads" in line for line in said)
    assert not any("straggler" in line for line in said)
