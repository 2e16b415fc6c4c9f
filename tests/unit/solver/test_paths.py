"""Longest paths in seconds, of many plans at once."""

import numpy as np
import pytest

from perseus_ds.solver.network import graph_of, longest_seconds
from perseus_ds.solver.problem import OptionTable, Problem


def random_problem(count: int) -> Problem:
    """Activities that wait for up to three of the eight before them, some of them longer than they last."""
    draw = np.random.default_rng(count)
    pairs = np.unique(
        [(before, at) for at in range(1, count) for before in draw.integers(max(0, at - 8), at, 3)], axis=0
    ).astype(np.int32)
    order = draw.permutation(count).astype(np.int32)  # numbers do not follow the order of time
    table = OptionTable(np.array([1.0]), np.array([1.0]))
    delay_s = draw.choice([0.0, 0.25], len(pairs))
    return Problem((table,), np.zeros(count, np.int32), order[pairs[:, 0]], order[pairs[:, 1]], delay_s)


def path_by_hand(problem: Problem, duration_s: np.ndarray) -> float:
    """Begin activities again and again until nothing moves (Bellman and Ford)."""
    start_s = np.zeros(len(problem))
    while True:
        ready_s = start_s[problem.before] + duration_s[problem.before] + problem.delay_s
        later_s = start_s.copy()
        np.maximum.at(later_s, problem.after, ready_s)
        if (later_s == start_s).all():
            return float((start_s + duration_s).max())
        start_s = later_s


@pytest.mark.parametrize("count", [2, 40, 400])
def test_longest_paths_are_those_found_by_hand_to_the_last_bit(count: int) -> None:
    problem = random_problem(count)
    duration_s = np.random.default_rng(1).random((3, count))
    found = longest_seconds(problem, graph_of(problem), duration_s)
    assert found.tolist() == [path_by_hand(problem, row) for row in duration_s]
