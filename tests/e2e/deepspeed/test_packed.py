"""A real pipeline over packed sequences, tuples of tokens and boundaries, counted from the batches.

Once they are read ahead, once counted at each forward of the first stage.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packed_pipeline import in_tuples, packed_engine
from packed_sequences import lengths_of, packed, simulated
from ranks import config, run_ranks
from varied_loads import BothWays, Timed, as_expected, both_ways, course, default_clocks, slower_pct, timed

from perseus_ds.profile import read_profile
from perseus_ds.schedule import Load

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

MICROBATCHES, RANKS, STEPS = 4, 4, 260


def trained(rank: int, content: Mapping[str, Any], steps: int) -> Timed:
    del rank
    engine = packed_engine(content)
    data = in_tuples(packed(engine.grid.get_data_parallel_rank(), MICROBATCHES))
    return timed(lambda: float(engine.train_batch(data)).hex(), steps)


def read_ahead_to_pace(run_dir: Path, pacing: str) -> dict[str, Any]:
    """The block of a job that knows its loads before an iteration where it is paced by them."""
    return course(run_dir, pacing, simulated=simulated(MICROBATCHES), read_ahead=pacing == "loads")


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
def test_loads_are_the_sums_of_lengths_and_of_their_squares(jobs: BothWays, job: str) -> None:
    profile = read_profile(jobs.run_dir / f"{job}_profile.json")
    known = {
        tuple(tuple(map(Load.of_lengths, lengths_of(r, n, MICROBATCHES))) for r in range(2)) for n in range(3)
    }
    assert set(profile.seen_loads) == known
    for fit in profile.loads.values():
        assert fit.r2 > 0.99
        assert fit.squares > 0.0


def test_every_iteration_followed_its_loads(jobs: BothWays) -> None:
    answers = jobs.answers
    assert answers["followed_iterations"] == answers["load_iterations"] >= 20
    assert not jobs.events & {"straggler", "disabled", "alone", "not_followed", "contradicted", "slower"}


def test_the_job_is_as_expected(jobs: BothWays) -> None:
    for summary in jobs.summaries:
        for name in ("saving", "slowdown"):
            sys.stdout.write(f"\n{name}: {summary[f'{name}_pct']:.2f} +- {summary[f'{name}_se_pct']:.2f}")
        as_expected(summary)


def test_no_rank_takes_longer_than_at_default_clocks(jobs: BothWays, tmp_path: Path) -> None:
    """In the virtual time of their GPUs: the last hundred steps, half of them audits, known to +- 0.1 %."""
    default = default_clocks(tmp_path, replicas=2, train=trained, course=read_ahead_to_pace)
    for name, said in (("with", jobs.with_it), ("without", jobs.without)):
        slower = [slower_pct(one.value, usual, last=100) for one, usual in zip(said, default, strict=True)]
        sys.stdout.write(f"\n{name} plans that follow loads: {max(slower):+.3f} %")
        assert max(slower) <= 0.1 + 0.1
