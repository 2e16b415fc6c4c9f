"""Plans played again: the checker passes what is right and names what is not."""

from dataclasses import replace

import numpy as np
import pytest
from textbook_gpu import HIGHEST_MHZ, textbook_profile

from perseus_ds.errors import SolverError
from perseus_ds.plan import PlanSet, build, doubt, verify
from perseus_ds.plan.check import check_bounds_by_lp, check_times_by_networkx
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.plan.problem import Switching
from perseus_ds.schedule import Kind, textbook


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    schedule = textbook("1f1b", stages=2, microbatches=3)
    return build(textbook_profile([1.0, 1.2]), schedule, blocking_power_w=70.0)


@pytest.mark.parametrize(
    "column", ["iteration_time_s", "effective_energy_j", "lower_bound_j", "effective_bound_j"]
)
def test_a_wrong_figure_is_named(plans: PlanSet, column: str) -> None:
    assert verify(plans) == len(plans)
    wrong = getattr(plans, column) + np.eye(len(plans))[1] * 50.0
    with pytest.raises(SolverError, match="plan 1"):
        verify(replace(plans, **{column: wrong}))


@pytest.mark.parametrize("share", [0.002, -0.005])
@pytest.mark.parametrize("column", ["lower_bound_j", "effective_bound_j"])
def test_a_bound_that_is_a_little_off_does_not_pass_the_linear_program(
    plans: PlanSet, column: str, share: float
) -> None:
    """Too high it claims what cannot be; far too low it claims a gap that is not there."""
    check_bounds_by_lp(plans, [0, 1])
    off = replace(plans, **{column: getattr(plans, column) + share * plans.energy_j})
    with pytest.raises(SolverError, match="linear program"):
        check_bounds_by_lp(off, [1])


@pytest.mark.parametrize("column", ["iteration_time_s", "t_min_s", "baseline"])
def test_a_time_that_is_off_does_not_pass_networkx(plans: PlanSet, column: str) -> None:
    check_times_by_networkx(plans, [0, len(plans) - 1])
    said = getattr(plans, column)
    later_s = 1.0 + 1e-6
    off = (
        replace(said, iteration_time_s=said.iteration_time_s * later_s)
        if column == "baseline"
        else said * later_s
    )
    with pytest.raises(SolverError, match="longest path"):
        check_times_by_networkx(replace(plans, **{column: off}), [0])


def test_transfers_that_travel_meanwhile_are_part_of_the_longest_path() -> None:
    """Orders without transfers: what a stage hands over is on its way for a while."""
    profile = textbook_profile([1.0, 1.2])
    sends = dict.fromkeys([(0, Kind.SEND_ACTIVATION), (1, Kind.SEND_GRAD)], 0.01)
    schedule = textbook("1f1b", stages=2, microbatches=3)
    late = build(replace(profile, fixed_s=sends), schedule, blocking_power_w=70.0)
    assert late.t_min_s > build(profile, schedule, blocking_power_w=70.0).t_min_s
    check_times_by_networkx(late, list(range(0, len(late), 20)))


def test_what_is_played_ends_at_its_time_in_running_order(plans: PlanSet) -> None:
    for index in range(len(plans)):
        played = play(plans.plan(index))
        assert max(one.end_s for one in played) == pytest.approx(plans.iteration_time_s[index])
        assert [one.instruction for one in played] == plans.computations()
    before = play_baseline(plans)
    assert {one.clock_mhz for one in before} == {HIGHEST_MHZ}
    assert max(one.end_s for one in before) == pytest.approx(plans.baseline.iteration_time_s)


@pytest.mark.parametrize("field", ["iteration_time_s", "energy_j"])
def test_a_baseline_that_is_not_the_schedules_is_refused(plans: PlanSet, field: str) -> None:
    wrong = replace(plans.baseline, **{field: 2.0 * getattr(plans.baseline, field)})
    with pytest.raises(SolverError, match="baseline"):
        verify(replace(plans, baseline=wrong))


def test_a_frontier_faster_than_maximum_clocks_by_more_than_the_error_is_doubtful(plans: PlanSet) -> None:
    assert doubt(plans) is None
    slow = replace(plans.baseline, iteration_time_s=plans.baseline.iteration_time_s * 1.05)
    assert "4.76 %" in str(doubt(replace(plans, baseline=slow, time_error_pct=1.0)))
    assert doubt(replace(plans, baseline=slow, time_error_pct=5.0)) is None


@pytest.mark.parametrize(("first_w", "second_w"), [(70.1, 0.0), (30.0, 20.0), (30.0, 30.0)])
def test_what_waiting_spares_is_one_number_and_no_more_than_it_takes(
    plans: PlanSet, first_w: float, second_w: float
) -> None:
    (first, own), (second, other), *_ = plans.options.items()
    options = {first: replace(own, spared_w={810: first_w}), second: replace(other, spared_w={810: second_w})}
    spared = replace(plans, options={**plans.options, **options})
    if first_w == second_w:
        assert verify(spared) == len(plans)
        return
    with pytest.raises(SolverError, match="810 MHz"):
        verify(spared)


def test_a_wait_goes_down_and_not_up() -> None:
    profile = replace(textbook_profile([1.0, 1.4]), blocking_w={HIGHEST_MHZ: 70.0, 705: 50.0})
    schedule = textbook("1f1b", stages=2, microbatches=3)
    plans = build(profile, schedule, blocking_power_w=70.0, switching=Switching(waits="automatic"))
    assert plans.wait_clock is not None
    assert verify(plans) == len(plans)
    with pytest.raises(SolverError, match=f"{HIGHEST_MHZ} MHz"):
        verify(replace(plans, wait_clock=replace(plans.wait_clock, clock_mhz=HIGHEST_MHZ)))
