"""What to expect where iterations follow their loads: worked out on paper, of loads that were seen."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from load_plans import BLOCKING_W, FREE, MICROBATCHES, STAGES, drawn, profile

from perseus_ds.config import Objective
from perseus_ds.plan import Expected, PlanRequest, PlanSet, build, read_plans, write_plans, write_request
from perseus_ds.profile import Profile, write_profile
from perseus_ds.profile.loads.seen_loads import SeenLoads
from perseus_ds.schedule import textbook
from perseus_ds.straggler.pacing.on_paper import expected_by_loads


def seen(replicas: int) -> SeenLoads:
    """Eight iterations."""
    return tuple(tuple(tuple(drawn(10 * n + r)) for r in range(replicas)) for n in range(8))


@cache
def measured() -> Profile:
    """As measured: waiting has its power at every clock."""
    return replace(profile(), blocking_w={1410: BLOCKING_W, 705: 50.0})


@cache
def planned() -> PlanSet:
    """With the reserve that loads ask for."""
    schedule = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
    return build(
        measured(),
        schedule,
        blocking_power_w=BLOCKING_W,
        reserve_pct="auto",
        fingerprint={"replicas": "1"},
    )


@cache
def found(replicas: int) -> tuple[Expected, Expected]:
    both = expected_by_loads(
        planned().plan(0), measured(), Objective(), FREE, replicas=replicas, seen=seen(replicas)
    )
    assert both is not None
    return both


@pytest.mark.thorough
@pytest.mark.parametrize("replicas", [1, 2, pytest.param(6, marks=pytest.mark.slow)])
def test_iterations_by_their_loads_save_more_and_last_no_longer(replicas: int) -> None:
    without, with_it = found(replicas)
    assert with_it.saving_pct > without.saving_pct + with_it.within_pct
    assert with_it.slowdown_pct <= max(0.0, without.slowdown_pct) + 0.2


@pytest.mark.thorough
def test_replicas_that_wait_for_the_longest_save_more_than_one_alone() -> None:
    assert found(2)[1].saving_pct > found(1)[1].saving_pct + 2.0


@pytest.mark.thorough
def test_few_iterations_of_their_own_make_it_less_sure() -> None:
    fewer = expected_by_loads(planned().plan(0), measured(), Objective(), FREE, replicas=1, seen=seen(1)[:3])
    assert fewer is not None
    assert fewer[1].within_pct > found(1)[1].within_pct


@pytest.mark.parametrize("loads", [(), seen(1)[:2], tuple(((one[0][:-1]),) for one in seen(1))])
def test_too_few_iterations_or_others_than_the_plan_s_say_nothing(loads: SeenLoads) -> None:
    assert expected_by_loads(planned().plan(0), measured(), Objective(), FREE, replicas=1, seen=loads) is None


@pytest.mark.slow
def test_the_process_adds_it_to_the_plan_and_leaves_others_as_they_are(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("profile.json", "request.json", "plan.json")]
    plans = planned()
    request = PlanRequest(
        plans.schedule, plans.fingerprint, BLOCKING_W, 0.0, objective=Objective(), change=FREE, by_loads=True
    )
    write_request(files[1], request)
    for loads in ((), seen(1)):
        write_profile(replace(measured(), seen_loads=loads), files[0])
        write_plans(plans, files[2])
        before = files[2].read_bytes()
        command = [sys.executable, "-P", "-m", "perseus_ds.straggler.pacing", *map(str, files)]
        subprocess.run(command, check=True, timeout=120)
        if not loads:
            assert files[2].read_bytes() == before
    written = read_plans(files[2])
    assert written.by_loads.keys() == written.expected.keys() == {0}
    assert written.by_loads[0].saving_pct > written.expected[0].saving_pct
