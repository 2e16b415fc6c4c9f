"""A real pipeline over packed sequences, tuples of tokens and boundaries, counted from the batches.

Once they are read ahead, once counted at each forward of the first stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packed import in_tuples, packed, packed_engine, simulated
from ranks import config, run_ranks
from varied_loads import (
    BothWays,
    Timed,
    both_ways,
    course,
    default_clocks,
    no_rank_is_slower,
    saves_more,
    timed,
    was_paced,
)

from perseus_ds.profile import read_profile

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

MICROBATCHES, RANKS, STEPS = 4, 4, 260


def trained(rank: int, content: Mapping[str, Any], steps: int) -> Timed:
    del rank
    engine = packed_engine(content)
    data = in_tuples(packed(engine.grid.get_data_parallel_rank(), MICROBATCHES))
    return timed(lambda: float(engine.train_batch(data)).hex(), steps)


def read_ahead_to_pace(run_dir: Path, pacing: str) -> dict[str, Any]:
    """The block of a job that knows its loads before an iteration where it is paced by them."""
    return course(run_dir, pacing, simulated=simulated(MICROBATCHES), read_ahead=pacing != "never")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> BothWays:
    return both_ways(
        tmp_path_factory.mktemp("packed"),
        replicas=2,
        steps=STEPS,
        train=trained,
        course=read_ahead_to_pace,
        afresh=True,
    )


def test_losses_are_those_without_us(jobs: BothWays) -> None:
    plain = [one.value.losses for one in run_ranks(RANKS, trained, config(), STEPS)]
    assert [one.value.losses for one in jobs.without] == plain
    assert [one.value.losses for one in jobs.with_it] == plain


@pytest.mark.parametrize("job", ["with", "without"])
def test_loads_explain_durations(jobs: BothWays, job: str) -> None:
    profile = read_profile(jobs.run_dir / f"{job}_profile.json")
    for fit in profile.loads.values():
        assert fit.r2 > 0.99
        assert fit.squares > 0.0


def test_replicas_were_paced(jobs: BothWays) -> None:
    was_paced(jobs)


def test_the_job_saves_more_than_without(jobs: BothWays) -> None:
    saves_more(jobs)


def test_no_rank_takes_longer_than_at_default_clocks(jobs: BothWays, tmp_path: Path) -> None:
    """In the virtual time of their GPUs."""
    no_rank_is_slower(jobs, default_clocks(tmp_path, replicas=2, train=trained, course=read_ahead_to_pace))
