"""Plans played again: the checker passes what is right and names what is not."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from perseus_ds.cli.verify import verify
from perseus_ds.errors import CertificateError
from perseus_ds.plan import PlanSet, read_plans
from perseus_ds.plan.play import play, play_baseline
from perseus_ds.schedule import Kind


@pytest.fixture
def plans(plan_file: Path) -> PlanSet:
    return read_plans(plan_file)


def test_every_plan_passes(plans: PlanSet) -> None:
    assert verify(plans) == len(plans)


@pytest.mark.parametrize("column", ["iteration_time_s", "effective_energy_j", "lower_bound_j"])
def test_a_wrong_figure_is_named(plans: PlanSet, column: str) -> None:
    wrong = getattr(plans, column) + np.eye(len(plans))[1] * 50.0
    with pytest.raises(CertificateError, match="plan 1"):
        verify(dataclasses.replace(plans, **{column: wrong}))


def test_a_plan_played_ends_at_its_iteration_time(plans: PlanSet) -> None:
    for index in range(len(plans)):
        plan = plans.plan(index)
        assert max(played.end_s for played in play(plan)) == pytest.approx(plan.iteration_time_s)


def test_the_baseline_runs_at_the_highest_clocks(plans: PlanSet) -> None:
    played = play_baseline(plans)
    assert {one.clock_mhz for one in played} == {1400}
    assert max(one.end_s for one in played) == pytest.approx(plans.baseline.iteration_time_s)


def test_played_in_running_order_stage_after_stage(plans: PlanSet) -> None:
    played = play(plans.plan(0))
    assert [one.instruction for one in played] == plans.computations()
    assert {one.instruction.kind for one in played} == {Kind.FORWARD, Kind.BACKWARD}
