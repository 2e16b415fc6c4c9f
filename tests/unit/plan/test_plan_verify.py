"""Plans played again: the checker passes what is right and names what is not."""

import dataclasses

import numpy as np
import pytest

from perseus_ds.errors import CertificateError
from perseus_ds.plan import PlanSet, build, doubt, verify
from perseus_ds.plan.checking.bound_by_lp import check_bounds_by_lp
from perseus_ds.plan.playing.play import play, play_baseline
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation.textbook_gpu import HIGHEST_MHZ, textbook_profile


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    schedule = textbook("1f1b", stages=2, microbatches=3)
    return build(textbook_profile([1.0, 1.2]), schedule, blocking_power_w=70.0)


def test_every_plan_passes(plans: PlanSet) -> None:
    assert verify(plans) == len(plans)


@pytest.mark.parametrize(
    "column", ["iteration_time_s", "effective_energy_j", "lower_bound_j", "effective_bound_j"]
)
def test_a_wrong_figure_is_named(plans: PlanSet, column: str) -> None:
    wrong = getattr(plans, column) + np.eye(len(plans))[1] * 50.0
    with pytest.raises(CertificateError, match="plan 1"):
        verify(dataclasses.replace(plans, **{column: wrong}))


@pytest.mark.parametrize("share", [0.002, -0.005])
@pytest.mark.parametrize("column", ["lower_bound_j", "effective_bound_j"])
def test_a_bound_that_is_a_little_off_does_not_pass_the_linear_program(
    plans: PlanSet, column: str, share: float
) -> None:
    """Too high it claims what cannot be; far too low it claims a gap that is not there."""
    check_bounds_by_lp(plans, [0, 1])
    off = dataclasses.replace(plans, **{column: getattr(plans, column) + share * plans.energy_j})
    with pytest.raises(CertificateError, match="a linear program finds"):
        check_bounds_by_lp(off, [1])


def test_a_plan_played_ends_at_its_iteration_time(plans: PlanSet) -> None:
    for index in range(len(plans)):
        plan = plans.plan(index)
        assert max(played.end_s for played in play(plan)) == pytest.approx(plan.iteration_time_s)


def test_the_baseline_runs_at_the_highest_clocks(plans: PlanSet) -> None:
    played = play_baseline(plans)
    assert {one.clock_mhz for one in played} == {HIGHEST_MHZ}
    assert max(one.end_s for one in played) == pytest.approx(plans.baseline.iteration_time_s)


def test_played_in_running_order_stage_after_stage(plans: PlanSet) -> None:
    played = play(plans.plan(0))
    assert [one.instruction for one in played] == plans.computations()
    assert {one.instruction.kind for one in played} == {Kind.FORWARD, Kind.BACKWARD}


@pytest.mark.parametrize("field", ["iteration_time_s", "energy_j"])
def test_a_baseline_that_is_not_the_schedules_is_refused(plans: PlanSet, field: str) -> None:
    wrong = dataclasses.replace(plans.baseline, **{field: 2.0 * getattr(plans.baseline, field)})
    with pytest.raises(CertificateError, match="the baseline says"):
        verify(dataclasses.replace(plans, baseline=wrong))


def test_a_frontier_faster_than_maximum_clocks_by_more_than_the_error_is_doubtful(plans: PlanSet) -> None:
    assert doubt(plans) is None
    fastest_s = plans.baseline.iteration_time_s
    slow = dataclasses.replace(plans.baseline, iteration_time_s=fastest_s * 1.05)
    told = doubt(dataclasses.replace(plans, baseline=slow, time_error_pct=1.0))
    assert told is not None
    assert "claims to be 4.76 % faster than all clocks at maximum" in told
    assert doubt(dataclasses.replace(plans, baseline=slow, time_error_pct=5.0)) is None
