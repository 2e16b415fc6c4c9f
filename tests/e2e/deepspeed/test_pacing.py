"""A real pipeline of two stages and two replicas with log-normal lengths, paced to the longer one."""

from __future__ import annotations

import pytest
from jobs import lines
from varied_loads import SIMULATED, STAGES, BothWays, both_ways, was_paced_and_saves

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


def test_the_job_saves_more_takes_no_longer_and_loses_the_same(paced: BothWays) -> None:
    assert [one.value for one in paced.with_it] == [one.value for one in paced.without]
    assert not any("straggler" in line for line in lines(paced.with_it[0]))
    assert paced.answers["mean_slowed_pct"] >= 2.0
    assert paced.answers["cost_pct"] <= 0.2
    was_paced_and_saves(paced, more_pct=4.0)
