"""Whole options: known answers by hand, the best of all choices where nothing is dropped, and never late."""

import numpy as np
import pytest
from solver_cases import brute_force, random_problem

from perseus_ds.solver import discretise as beams
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import OptionTable, Problem

FAST_OR_SLOW = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))


def in_a_row(activities: int) -> Problem:
    """One activity after the other, all fast or slow."""
    before, tables = np.arange(activities - 1, dtype=np.int32), np.zeros(activities, np.int32)
    return Problem((FAST_OR_SLOW,), tables, before, before + 1, np.zeros(activities - 1))


@pytest.mark.parametrize("seed", range(24))
def test_where_nothing_is_dropped_no_choice_of_all_is_better(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 5, points=3)
    frontier, every = solve_frontier(problem), brute_force(problem)
    for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 4):
        best_j = min(cost_j for lasts_s, cost_j in every if lasts_s <= time_s * (1 + 1e-12))
        found = discretise(frontier, np.array([time_s]))
        assert found.cost_j.tolist() == pytest.approx([best_j], abs=1e-9)


@pytest.mark.parametrize("width", [1, 3, 40])
def test_no_plan_is_late_however_narrow_the_beam(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beams, "WIDEST", width)
    for seed in range(12):
        problem = random_problem(seed, activities=20)
        frontier = solve_frontier(problem)
        for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 3):
            found = discretise(frontier, np.array([time_s]))
            assert (found.time_s <= time_s * (1 + 1e-12)).all()


def test_plans_between_two_that_were_searched_change_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three in a row, all fast (3 s, 12 J) or all slow (6 s, 3 J): every second more is one slow activity."""
    monkeypatch.setattr(beams, "BEAMS", 2)
    monkeypatch.setattr(beams, "ACTIVITIES", 0)
    problem = in_a_row(3)
    found = discretise(solve_frontier(problem), np.array([3.0, 3.9, 4.0, 5.0, 6.0]))
    assert found.time_s.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert found.cost_j.tolist() == [12.0, 9.0, 6.0, 3.0]
    assert (np.abs(np.diff(found.choice, axis=1)).sum(axis=1) <= 1).all()
