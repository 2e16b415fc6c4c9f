from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.errors import InfeasibleError, SolverError
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import OptionTable, Problem

QUICK_OR_CHEAP = OptionTable(np.array([1.0, 2.0]), np.array([5.0, 1.0]))


def problem(
    count: int, pairs: list[tuple[int, int]], table: OptionTable = QUICK_OR_CHEAP, delay_s: float = 0.0
) -> Problem:
    before, after = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return Problem((table,), np.zeros(count, dtype=np.int32), before, after, np.full(len(pairs), delay_s))


def test_two_in_a_row_share_the_time_and_a_delay_adds_to_it() -> None:
    frontier = solve_frontier(problem(2, [(0, 1)], delay_s=0.5))
    assert (frontier.t_min_s, frontier.t_star_s) == (2.5, 4.5)
    assert frontier.durations_at(3.5).sum() == pytest.approx(3.0)


def test_a_single_option_leaves_nothing_to_choose_and_dominated_ones_are_never_chosen() -> None:
    frontier = solve_frontier(problem(2, [(0, 1)], OptionTable(np.array([1.0]), np.array([3.0]))))
    assert frontier.time_s.tolist() == [2.0]
    assert frontier.cost_at(9.0) == 6.0
    one = problem(1, [], OptionTable(np.array([3.0, 1.0, 2.0]), np.array([9.0, 1.0, 5.0])))
    assert discretise(solve_frontier(one), np.array([3.0])).choice.tolist() == [[1]]


def test_progress_ends_at_one() -> None:
    heard: list[float] = []
    solve_frontier(problem(3, [(0, 1), (1, 2)]), progress=heard.append)
    assert heard[-1] == 1.0


def test_a_cycle_is_walked_in_the_message_and_too_early_a_deadline_says_t_min() -> None:
    with pytest.raises(SolverError, match=" -> ".join("0120")):
        solve_frontier(problem(3, [(0, 1), (1, 2), (2, 0)]))
    one = problem(1, [])
    with pytest.raises(InfeasibleError, match=r"\b1 s"):
        solve_frontier(one, until_s=0.5)
    with pytest.raises(InfeasibleError, match=r"\b1 s"):
        discretise(solve_frontier(one), np.array([0.9]))


@pytest.mark.parametrize(
    ("duration_s", "cost_j", "said"),
    [
        ([], [], "empty"),
        ([np.nan], [1.0], "duration 0"),
        ([1.0, -1.0], [1.0, 2.0], "duration 1"),
        ([1.0], [np.inf], "cost 0"),
        ([1.0, 2.0], [1.0], "one length"),
    ],
)
def test_a_bad_table_is_named(duration_s: list[float], cost_j: list[float], said: str) -> None:
    with pytest.raises(SolverError, match=said):
        OptionTable(np.array(duration_s), np.array(cost_j))


def test_a_bad_problem_is_named_and_durations_that_no_scale_holds_with_the_limit() -> None:
    with pytest.raises(SolverError, match="no activities"):
        problem(0, [])
    with pytest.raises(SolverError, match=r"before.* 5"):
        problem(1, [(5, 0)])
    with pytest.raises(SolverError, match=r"delay.* -1"):
        problem(2, [(0, 1)], delay_s=-1.0)
    with pytest.raises(SolverError, match="limit"):
        solve_frontier(problem(1, [], OptionTable(np.array([1e-9, 1e9]), np.array([1.0, 0.0]))))
