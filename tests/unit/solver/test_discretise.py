"""Beams: known answers by hand, the best of all choices where nothing is dropped, and never late."""

import numpy as np
import pytest
from solver_cases import brute_force, random_problem

from perseus_ds.solver.discretise import (
    Choices,
    Guide,
    beam,
    choices_of,
    convex,
    guide_at,
    nth,
    plan_of,
    spliced,
)
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.network import Whole, whole_of
from perseus_ds.solver.problem import OptionTable, Problem

FAST_OR_SLOW = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))


def in_a_row(activities: int, table: OptionTable = FAST_OR_SLOW) -> Problem:
    """One activity after the other, all with the same options."""
    before = np.arange(activities - 1, dtype=np.int32)
    return Problem((table,), np.zeros(activities, np.int32), before, before + 1, np.zeros(activities - 1))


def guided(problem: Problem, time_s: float) -> tuple[Whole, Choices, Guide]:
    frontier = solve_frontier(problem)
    choices = choices_of(frontier.whole)
    return frontier.whole, choices, guide_at(frontier, choices, time_s, frontier.whole.within(time_s))


def chosen(problem: Problem, time_s: float, *, width: int = 8, leaning: float = 0.0) -> list[int]:
    """The option of every activity."""
    whole, choices, guide = guided(problem, time_s)
    return choices.option[beam(whole.graph, whole.delay, choices, guide, width, leaning)].tolist()


@pytest.mark.parametrize(("time_s", "slow"), [(3.0, 0), (3.9, 0), (4.0, 1), (5.5, 2), (6.0, 3)])
def test_three_in_a_row_run_slow_as_often_as_there_is_a_second_for_it(time_s: float, slow: int) -> None:
    assert sum(chosen(in_a_row(3), time_s)) == slow


def test_of_two_at_once_the_one_that_does_not_hold_anyone_up_runs_slow() -> None:
    """The first (3 s) and the second (1 or 2 s) both come before the third (1 or 2 s): within 4 s."""
    fixed = OptionTable(np.array([3.0]), np.array([0.0]))
    both = np.array([0, 1], np.int32), np.array([2, 2], np.int32)
    problem = Problem((fixed, FAST_OR_SLOW), np.array([0, 1, 1]), *both, np.zeros(2))
    assert chosen(problem, 4.0) == [0, 1, 0]
    assert chosen(problem, 5.0) == [0, 1, 1]


def test_between_two_seconds_the_slower_is_the_one_that_saves_more() -> None:
    dear = OptionTable(np.array([1.0, 2.0]), np.array([9.0, 1.0]))
    one = np.array([0], np.int32), np.array([1], np.int32), np.zeros(1)
    assert chosen(Problem((FAST_OR_SLOW, dear), np.array([0, 1]), *one), 3.0) == [0, 1]


@pytest.mark.parametrize("seed", range(24))
def test_where_nothing_is_dropped_no_choice_of_all_is_better(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 5, points=3)
    frontier = solve_frontier(problem)
    choices, every = choices_of(frontier.whole), brute_force(problem)
    for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 4):
        guide = guide_at(frontier, choices, float(time_s), frontier.whole.within(float(time_s)))
        place = beam(frontier.whole.graph, frontier.whole.delay, choices, guide, 1024, 0.1)
        best_j = min(cost_j for lasts_s, cost_j in every if lasts_s <= time_s * (1 + 1e-12))
        assert choices.cost[place].sum() == pytest.approx(best_j, abs=1e-9)


@pytest.mark.parametrize("width", [1, 3, 40])
def test_no_beam_is_late_however_narrow(width: int) -> None:
    for seed in range(12):
        problem = random_problem(seed, activities=20)
        frontier = solve_frontier(problem)
        choices = choices_of(frontier.whole)
        for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 3):
            wanted = frontier.whole.within(float(time_s))
            guide = guide_at(frontier, choices, float(time_s), wanted)
            place = beam(frontier.whole.graph, frontier.whole.delay, choices, guide, width, 0.1)
            assert frontier.whole.longest(choices.length[place]) <= wanted


def test_a_plan_between_two_changes_over_once() -> None:
    """Three in a row, all fast (3 s, 12 J) or all slow (6 s, 3 J): every second more is one slow activity."""
    whole = whole_of(in_a_row(3))
    choices, order = choices_of(whole), np.arange(3, dtype=np.int32)
    corners = [plan_of(whole, choices, np.full(3, place, np.int32)) for place in (0, 1)]
    for time_s, cost_j in ((3.0, 12.0), (3.9, 12.0), (4.0, 9.0), (5.0, 6.0), (6.0, 3.0)):
        plan = spliced(whole, choices, order, corners, whole.within(time_s))
        assert plan.cost_j == cost_j
        assert plan.ticks <= whole.within(time_s)


def test_a_plan_that_a_mixture_of_two_others_beats_is_no_corner() -> None:
    whole = whole_of(in_a_row(2, OptionTable(np.array([1.0, 2.0, 3.0]), np.array([9.0, 8.0, 1.0]))))
    choices = choices_of(whole)
    plans = [plan_of(whole, choices, np.full(2, place, np.int32)) for place in (1, 2, 0)]
    assert [plan.cost_j for plan in convex(plans)] == [18.0, 2.0]


@pytest.mark.parametrize("rank", [0, 1, 17, 38, 39])
def test_the_value_of_a_rank_is_that_of_the_sorted_values(rank: int) -> None:
    values = np.random.default_rng(rank).integers(0, 12, 40).astype(np.float64)
    assert nth(values.copy(), 40, rank) == np.sort(values)[rank]
