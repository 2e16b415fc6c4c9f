"""Whole options: by hand, the best of all choices where nothing is dropped, never late; splits by hand."""

import numpy as np
import pytest
from solver_cases import brute_force, random_problem

from perseus_ds.solver import discretise as beams
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import OptionTable, Problem, long_enough
from perseus_ds.solver.splits import corner_durations, reclaim, split

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
        assert discretise(frontier, np.array([time_s])).cost_j.tolist() == pytest.approx([best_j], abs=1e-9)


@pytest.mark.parametrize("width", [1, 3, 40])
def test_no_plan_is_late_however_narrow_the_beam(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beams, "WIDEST", width)
    for seed in range(12):
        frontier = solve_frontier(random_problem(seed, activities=20))
        for time_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 3):
            assert (discretise(frontier, np.array([time_s])).time_s <= time_s * (1 + 1e-12)).all()


def test_plans_between_two_that_were_searched_change_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three in a row, all fast (3 s, 12 J) or all slow (6 s, 3 J): every second more is one slow activity."""
    monkeypatch.setattr(beams, "BEAMS", 2)
    monkeypatch.setattr(beams, "ACTIVITIES", 0)
    found = discretise(solve_frontier(in_a_row(3)), np.array([3.0, 3.9, 4.0, 5.0, 6.0]))
    assert found.time_s.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert found.cost_j.tolist() == [12.0, 9.0, 6.0, 3.0]
    assert (np.abs(np.diff(found.choice, axis=1)).sum(axis=1) <= 1).all()


# Splits: which activity is split, where its change falls, and who gets the time that is left.

DEAR = OptionTable(np.array([1.0, 2.0]), np.array([9.0, 1.0]))
ONE_AFTER_THE_OTHER = np.array([0], np.int32), np.array([1], np.int32), np.zeros(1)


def two(*tables: OptionTable) -> Problem:
    return Problem(tables, np.arange(2) % len(tables), *ONE_AFTER_THE_OTHER)


@pytest.mark.parametrize("time_s", [2.0, 2.25, 2.5, 3.0, 3.75, 4.0])
def test_of_two_alike_at_most_one_lies_between_its_options(time_s: float) -> None:
    """Their mean would split both."""
    frontier = solve_frontier(two(FAST_OR_SLOW))
    duration_s = frontier.whole.tick.real(corner_durations(frontier, time_s))
    assert duration_s.sum() == pytest.approx(time_s)
    assert ((duration_s > 1.0 + 1e-9) & (duration_s < 2.0 - 1e-9)).sum() <= 1


def test_half_a_second_more_is_half_the_work_at_the_slower_option() -> None:
    plans = split(solve_frontier(two(FAST_OR_SLOW, DEAR)), np.array([2.5]))
    assert plans.choice.tolist() == [[0, 0]]
    assert plans.other.tolist() == [[0, 1]]
    assert plans.share[0] == pytest.approx([1.0, 0.5], abs=1e-5)
    assert plans.cost_j == pytest.approx([9.0], abs=1e-4)


def reclaimed(problem: Problem, duration_s: list[float], time_s: float, least_s: float = 0.0) -> np.ndarray:
    frontier = solve_frontier(problem)
    return frontier.whole.tick.real(reclaim(frontier, np.array(duration_s), time_s, least_s))


def test_time_that_is_left_goes_to_who_saves_most_by_it() -> None:
    """Both at their fastest within 2.5 s: a second saves 3 J in the first and 8 J in the second."""
    assert reclaimed(two(FAST_OR_SLOW, DEAR), [1.0, 1.0], 2.5) == pytest.approx([1.0, 1.5])
    assert reclaimed(two(FAST_OR_SLOW, DEAR), [1.0, 1.0], 3.5) == pytest.approx([1.5, 2.0])


def test_beside_a_longer_one_an_activity_is_split_where_both_parts_last() -> None:
    """Beside 1.7 s: 0.3 s at the faster option and 1.4 s at the slower, or longer parts, or none."""
    fixed, none = OptionTable(np.array([1.7]), np.array([0.0])), np.zeros(0, np.int32)
    problem = Problem((FAST_OR_SLOW, fixed), np.array([0, 1]), none, none, np.zeros(0))
    for least_part_s, lasts_s in ((0.1, 1.7), (0.5, 1.5), (0.9, 1.0)):
        assert reclaimed(problem, [1.0, 1.7], 1.7, least_part_s) == pytest.approx([lasts_s, 1.7])


def test_who_waits_for_a_longer_one_has_no_more_time_left() -> None:
    """Of three in a row two get the second and a half that is left; every start moves with the one before."""
    chain = np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([0.25, 0.0])
    duration_s = reclaimed(Problem((FAST_OR_SLOW, DEAR), np.array([0, 1, 0]), *chain), [1.0] * 3, 4.75)
    assert duration_s.sum() == pytest.approx(4.5)
    assert duration_s[1] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("fast", "least_s", "share"),
    [(0.5, 0.0, 0.5), (0.5, 0.6, 0.6), (0.5, 0.9, 1.0), (0.0, 0.6, 0.0), (1.0, 0.6, 1.0), (0.1, 0.3, 0.3)],
)
def test_a_part_too_short_gets_longer_or_there_is_none(fast: float, least_s: float, share: float) -> None:
    """Parts at 1 s and at 2 s for all the work."""
    found = long_enough(np.array([fast]), np.array([1.0]), np.array([2.0]), least_s)
    assert found[0] == pytest.approx(share, abs=1e-5)
