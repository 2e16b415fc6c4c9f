"""Split plans lie on the relaxed optimum; with parts that must last they stay in time and near it."""

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import longest_path, noisy_pipeline, random_problem, relaxed_cost, seeds

from perseus_ds.solver.check import check_plans
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import OptionTable, Plans, Problem, blend
from perseus_ds.solver.splits import split


def options_of(problem: Problem, plans: Plans, index: int) -> tuple[np.ndarray, np.ndarray]:
    return blend(problem, plans.choice[index], plans.other[index], plans.share[index])


@given(seeds)
@settings(max_examples=80, deadline=None)
def test_with_changes_free_a_plan_costs_what_the_lp_says(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 14)
    frontier = solve_frontier(problem)
    wanted_s = np.linspace(frontier.t_min_s, frontier.t_star_s, 5)
    plans = split(frontier, wanted_s)
    check_plans(problem, plans, frontier=frontier)
    for time_s in wanted_s:
        fits = np.flatnonzero(plans.time_s <= time_s * (1 + 1e-9))
        lp_j = relaxed_cost(problem, float(time_s) * (1 + 1e-12))
        assert plans.cost_j[fits[-1]] == pytest.approx(lp_j, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("points", [3, 6, 20])
def test_the_gap_is_rounding_on_coarse_and_noisy_grids(points: int) -> None:
    problem = noisy_pipeline(points, stages=8, microbatches=32, points=points)
    frontier = solve_frontier(problem)
    plans = split(frontier, np.linspace(frontier.t_min_s, frontier.t_star_s, 40)[:-1])
    gap = (plans.cost_j - plans.bound_j) / plans.bound_j
    assert gap.max() <= 1e-6
    assert (plans.share < 1.0).any()


@pytest.mark.parametrize("least_part_s", [0.004, 0.015, 0.03, 0.2])
def test_no_part_is_shorter_than_allowed_and_no_plan_is_late(least_part_s: float) -> None:
    problem = noisy_pipeline(2, stages=4, microbatches=8, points=6)
    frontier = solve_frontier(problem)
    wanted_s = np.linspace(frontier.t_min_s, frontier.t_star_s, 12)
    plans = split(frontier, wanted_s, least_part_s=least_part_s)
    check_plans(problem, plans, frontier=frontier)
    assert plans.time_s[0] == pytest.approx(frontier.t_min_s, rel=1e-9)
    for index in range(len(plans)):
        duration_s, _ = options_of(problem, plans, index)
        assert longest_path(problem, duration_s) == pytest.approx(plans.time_s[index])
        halves = plans.share[index] < 1.0
        fast_s, _ = blend(problem, plans.choice[index], plans.choice[index], np.ones(len(problem)))
        assert (plans.share[index] * fast_s)[halves].min(initial=np.inf) >= least_part_s * (1 - 1e-9)
        rest_s = duration_s - plans.share[index] * fast_s
        assert rest_s[halves].min(initial=np.inf) >= least_part_s * (1 - 1e-6)
    if least_part_s >= 0.2:
        assert (plans.share == 1.0).all()


def test_an_option_that_takes_no_time_has_no_part_that_lasts() -> None:
    instant = OptionTable(np.array([0.0, 1.0]), np.array([5.0, 1.0]))
    whole_s = OptionTable(np.array([0.5]), np.array([2.0]))
    problem = Problem((instant, whole_s), np.array([0, 1]), np.array([0]), np.array([1]), np.zeros(1))
    plans = split(solve_frontier(problem), np.array([0.5, 1.0, 1.5]), least_part_s=0.2)
    assert plans.time_s.tolist() == [0.5, 1.5]
    assert (plans.share == 1.0).all()
