"""A real pipeline of two stages and two replicas with log-normal lengths, paced to the longer one."""

from __future__ import annotations

import math
import sys

import pytest
from jobs import SURE, lines
from varied_loads import BothWays, as_expected, both_ways

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> BothWays:
    return both_ways(tmp_path_factory.mktemp("paced"), replicas=2, steps=260)


def test_losses_are_those_without_it(paced: BothWays) -> None:
    assert [one.value for one in paced.with_it] == [one.value for one in paced.without]


def test_replicas_were_paced_and_it_is_written_down(paced: BothWays) -> None:
    answers = paced.answers
    assert answers["paced_iterations"] >= 20
    assert answers["mean_slowed_pct"] >= 2.0
    assert answers["cost_pct"] <= 0.2


def test_the_job_saves_more_and_takes_no_longer(paced: BothWays) -> None:
    without, with_it = paced.summaries
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(f"\n{name}: {without[name]:.2f}, paced {with_it[name]:.2f}")
    assert with_it["saving_pct"] > without["saving_pct"] + 4.0
    within = SURE * math.hypot(with_it["slowdown_se_pct"], without["slowdown_se_pct"])
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within


def test_nobody_is_called_slow(paced: BothWays) -> None:
    assert not paced.events & {"straggler", "disabled", "alone", "contradicted", "slower"}
    assert not any("straggler" in line for line in lines(paced.with_it[0]))


def test_without_it_the_job_is_as_expected(paced: BothWays) -> None:
    as_expected(paced.summaries[0])
