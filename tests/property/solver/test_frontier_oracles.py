from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import gpt3, noisy_pipeline, random_problem, seeds
from solver_oracles import brute_force, longest_path, relaxed_cost

from perseus_ds.solver import Frontier, Problem, check_frontier, check_plans, discretise, solve_frontier


def assert_matches_lp(problem: Problem, frontier: Frontier, samples: int) -> None:
    for time_s in np.linspace(frontier.t_min_s, 1.05 * frontier.t_star_s, samples):
        lp_j = relaxed_cost(problem, float(time_s) * (1 + 1e-12))
        assert frontier.cost_at(time_s) == pytest.approx(lp_j, rel=1e-6, abs=1e-6)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_random_graphs_agree_with_the_lp_and_pass_the_checker(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 14)
    frontier = solve_frontier(problem)
    check_frontier(problem, frontier)
    assert_matches_lp(problem, frontier, 4)


@pytest.mark.parametrize("seed", range(4))
def test_noisy_pipelines_agree_with_the_lp(seed: int) -> None:
    problem = noisy_pipeline(seed, stages=3, microbatches=5, points=9)
    assert_matches_lp(problem, solve_frontier(problem), 8)


def test_the_measured_profile_agrees_with_the_lp() -> None:
    problem = gpt3(stages=4, microbatches=8)
    assert_matches_lp(problem, solve_frontier(problem), 12)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_plans_keep_their_time_and_no_choice_beats_their_bound(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 5, points=3)
    frontier = solve_frontier(problem)
    wanted_s = np.linspace(frontier.t_min_s, frontier.t_star_s, 5)
    plans = discretise(problem, frontier, wanted_s)
    check_plans(problem, plans, frontier=frontier)
    assert (plans.time_s <= wanted_s).all()
    every = brute_force(problem)
    for index in range(len(plans)):
        best_j = min(cost for time, cost in every if time <= plans.time_s[index] * (1 + 1e-12))
        assert plans.bound_j[index] <= best_j + 1e-9


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_durations_keep_the_iteration_time_between_breakpoints_too(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 14)
    frontier = solve_frontier(problem)
    for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 5):
        assert longest_path(problem, frontier.durations_at(float(time_s))) <= time_s * (1 + 1e-12)
