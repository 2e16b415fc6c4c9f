"""The frontier against linear and mixed-integer programs and brute force; its plans, whole and split."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import (
    BLOCKING_W,
    SOURCES,
    brute_force,
    discrete_cost,
    gpt3,
    longest_path,
    noisy_pipeline,
    published,
    random_problem,
    relaxed_cost,
    seeds,
)

from perseus_ds.solver.check import check_frontier, check_plans
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import Frontier, plan_times, solve_frontier, worth_keeping
from perseus_ds.solver.problem import OptionTable, Problem, blend
from perseus_ds.solver.splits import split


def assert_matches_lp(problem: Problem, frontier: Frontier, samples: int) -> None:
    for time_s in np.linspace(frontier.t_min_s, 1.05 * frontier.t_star_s, samples):
        lp_j = relaxed_cost(problem, float(time_s) * (1 + 1e-12))
        assert np.interp(time_s, frontier.time_s, frontier.cost_j) == pytest.approx(lp_j, rel=1e-6, abs=1e-6)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_random_graphs_agree_with_the_lp_and_pass_the_checker(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 14)
    frontier = solve_frontier(problem)
    check_frontier(problem, frontier)
    assert_matches_lp(problem, frontier, 4)


@pytest.mark.parametrize("source", [*SOURCES, 0, 1, 2, 3])
def test_pipelines_of_measured_and_noisy_curves_agree_with_the_lp(source: str | int) -> None:
    if isinstance(source, str):
        problem = gpt3(source, stages=4, microbatches=8)
    else:
        problem = noisy_pipeline(source, stages=3, microbatches=5, points=9)
    assert_matches_lp(problem, solve_frontier(problem), 8)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_plans_keep_their_time_and_no_choice_beats_their_bound(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 5, points=3)
    frontier = solve_frontier(problem)
    wanted_s = np.linspace(frontier.t_min_s, frontier.t_star_s, 5)
    plans = discretise(frontier, wanted_s)
    check_plans(problem, plans, frontier=frontier)
    assert all((plans.time_s[k] <= wanted_s).any() for k in range(len(plans)))
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


@pytest.mark.parametrize(
    ("source", "microbatches", "saving_pct"),
    [
        ("simulated", 12, 15.95),
        pytest.param("simulated", 96, 13.89, marks=pytest.mark.slow),
        ("published", 12, 15.95),
        ("published", 96, 13.71),
    ],
)
def test_the_fastest_plan_of_gpt3_saves_what_is_known_to_be_possible(
    source: str, microbatches: int, saving_pct: float
) -> None:
    problem = gpt3(source, stages=8, microbatches=microbatches)
    frontier = solve_frontier(problem)
    plans = discretise(frontier, np.array([frontier.t_min_s]))
    waiting_j = 8 * BLOCKING_W * frontier.t_min_s
    fastest_j = sum(float(problem.tables[table].cost_j[0]) for table in problem.table_of) + waiting_j
    assert 100.0 * (1.0 - (plans.cost_j[0] + waiting_j) / fastest_j) >= saving_pct


@pytest.mark.parametrize("microbatches", [12, pytest.param(96, marks=pytest.mark.slow)])
def test_never_more_energy_than_the_published_frontier(microbatches: int) -> None:
    name = f"gpt3-175b_a100-sxm_mb{microbatches}_published_frontier.csv"
    with published(name).open() as lines:
        rows = [(float(row["time"]), float(row["energy"])) for row in csv.DictReader(lines)]
    published_s, published_j = np.array(sorted(rows)[:: max(1, len(rows) // 40)]).T
    problem = gpt3("published", stages=8, microbatches=microbatches)
    frontier = solve_frontier(problem)
    # published durations were floored to 1 ms: all at their fastest, they take as much less as real ones do
    real_s = published_s * (frontier.t_min_s / published_s[0])
    assert 1.0 < real_s[0] / published_s[0] < 1.007
    real_s[0] = frontier.t_min_s
    plans = discretise(frontier, real_s)
    fits = np.searchsorted(plans.time_s, real_s, side="right") - 1
    assert (plans.cost_j[fits] + 8 * BLOCKING_W * published_s <= published_j).all()


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 3), (3, 4), (2, 6), (4, 4)])
@pytest.mark.parametrize("source", [*SOURCES, "noisy"])
def test_small_plans_are_near_the_discrete_optimum(stages: int, microbatches: int, source: str) -> None:
    shape = {"stages": stages, "microbatches": microbatches}
    problem = noisy_pipeline(5, points=12, **shape) if source == "noisy" else gpt3(source, **shape)
    frontier = solve_frontier(problem)
    times_s = np.linspace(frontier.t_min_s, frontier.t_star_s, 4)[:-1]
    plans = discretise(frontier, times_s)
    for time_s in times_s:
        ours_j = plans.cost_j[plans.time_s <= time_s].min()
        best_j, _ = discrete_cost(problem, float(time_s) * (1 + 1e-12), limit_s=20.0)
        total_j = best_j + stages * BLOCKING_W * time_s
        assert ours_j - best_j <= 0.0005 * total_j


@pytest.mark.parametrize(("time_scale", "cost_scale"), [(1e-5, 1e-9), (1e4, 1e9), (1.0, 1e-3), (1e-3, 1.0)])
def test_scale_changes_nothing_but_the_scale(time_scale: float, cost_scale: float) -> None:
    problem = noisy_pipeline(7, stages=3, microbatches=4, points=8)
    scaled = Problem(
        tuple(OptionTable(t.duration_s * time_scale, t.cost_j * cost_scale) for t in problem.tables),
        problem.table_of, problem.before, problem.after, problem.delay_s * time_scale,
    )  # fmt: skip
    plain, other = solve_frontier(problem), solve_frontier(scaled)
    check_frontier(scaled, other)
    times_s = np.linspace(plain.t_min_s, plain.t_star_s, 9)
    cost_j = np.interp(times_s * time_scale, other.time_s, other.cost_j)
    plain_j = np.interp(times_s, plain.time_s, plain.cost_j)
    assert cost_j == pytest.approx(plain_j * cost_scale, rel=1e-9)


@pytest.mark.parametrize("source", SOURCES)
def test_pipelines_pass_the_checkers(source: str) -> None:
    problem = gpt3(source, stages=4, microbatches=8)
    frontier = solve_frontier(problem)
    check_frontier(problem, frontier)
    power_w = 4 * BLOCKING_W
    plans = discretise(frontier, plan_times(frontier, base_power_w=power_w)[::8])
    kept = worth_keeping(plans, base_power_w=power_w)
    check_plans(problem, plans, frontier=frontier)
    check_plans(problem, kept, frontier=frontier)
    gap = (kept.cost_j - kept.bound_j) / (kept.cost_j + power_w * kept.time_s)
    assert gap.mean() <= 0.0015
    assert (np.diff(kept.time_s) > 0).all()
    assert (np.diff(kept.cost_j) < 0).all()


# Split plans lie on the relaxed optimum; with parts that must last they stay in time and near it.


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
        duration_s, _ = blend(problem, plans.choice[index], plans.other[index], plans.share[index])
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
