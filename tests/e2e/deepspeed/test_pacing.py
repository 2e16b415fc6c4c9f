"""A real pipeline of two stages and two replicas with log-normal lengths, paced to the longer one."""

from __future__ import annotations

import math
import sys

import pytest
from jobs import SURE, lines
from varied_loads import SIMULATED, STAGES, BothWays, as_expected, both_ways

from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> BothWays:
    return both_ways(tmp_path_factory.mktemp("paced"), replicas=2, steps=260)


def test_the_profile_finds_what_loads_cost_on_every_stage(paced: BothWays) -> None:
    """Stages after the first see no lengths and are fitted on those that the first one counts."""
    profile = read_profile(paced.run_dir / "profile.json")
    for stage in range(STAGES):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            fit = profile.loads[stage, kind]
            assert fit.r2 > 0.99
            assert fit.scatter < 0.02
            assert [fit.base, fit.tokens, fit.squares] == pytest.approx(SIMULATED["load_terms"], abs=0.1)


def test_losses_are_those_without_it_and_nobody_is_called_slow(paced: BothWays) -> None:
    assert [one.value for one in paced.with_it] == [one.value for one in paced.without]
    assert not paced.events & {"straggler", "disabled", "alone", "contradicted", "slower"}
    assert not any("straggler" in line for line in lines(paced.with_it[0]))


def test_the_job_saves_more_and_takes_no_longer(paced: BothWays) -> None:
    """And without pacing it is as expected."""
    assert paced.answers["paced_iterations"] >= 20
    assert paced.answers["mean_slowed_pct"] >= 2.0
    assert paced.answers["cost_pct"] <= 0.2
    without, with_it = paced.summaries
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(f"\n{name}: {without[name]:.2f}, paced {with_it[name]:.2f}")
    assert with_it["saving_pct"] > without["saving_pct"] + 4.0
    within = SURE * math.hypot(with_it["slowdown_se_pct"], without["slowdown_se_pct"])
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within
    as_expected(without)
