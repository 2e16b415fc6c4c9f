"""Megatron's own schedule, two stages and two replicas with log-normal lengths, paced by them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from jobs import SURE
from varied_loads import PERIOD, BothWays, as_expected, both_ways, lengths_of

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron.core import parallel_state
from megatron_jobs import Job, Shape

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def trained(rank: int, content: Mapping[str, Any], steps: int) -> list[list[str]]:
    del rank
    job = Job(Shape(pipeline=2, data=2))
    perseus_ds.attach(job.schedules, config=content["perseus"])
    perseus_ds.set_load(lengths_of(parallel_state.get_data_parallel_rank(), period=PERIOD))
    job.run_pass = job.schedules.get_forward_backward_func()
    return [job.step() for _ in range(steps)]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> BothWays:
    return both_ways(tmp_path_factory.mktemp("paced"), replicas=2, steps=260, train=trained)


def test_losses_are_those_without_it(paced: BothWays) -> None:
    assert [one.value for one in paced.with_it] == [one.value for one in paced.without]


def test_replicas_were_paced(paced: BothWays) -> None:
    answers = paced.answers
    assert answers["paced_iterations"] >= 20
    assert not paced.events & {"straggler", "disabled", "alone", "contradicted", "slower"}


def test_the_job_saves_more_and_takes_no_longer(paced: BothWays) -> None:
    without, with_it = paced.summaries
    for name in ("saving_pct", "slowdown_pct"):
        error = with_it[name.replace("_pct", "_se_pct")]
        sys.stdout.write(f"\n{name}: {without[name]:.2f}, paced {with_it[name]:.2f} +- {error:.2f}")
    assert with_it["saving_pct"] > without["saving_pct"] + 3.0
    within = SURE * math.hypot(with_it["slowdown_se_pct"], without["slowdown_se_pct"])
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within


def test_without_it_the_job_is_as_expected(paced: BothWays) -> None:
    as_expected(paced.summaries[0])
