"""The sweep against the readable algorithm that it is: the same least cost at every cut, the same T_min."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from solver_cases import embedded_cuts, lower_hull, random_problem, seeds

from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import Problem

TENTHS = 10
"""Durations and delays of these problems are tenths of a second."""


def cuts_of(problem: Problem) -> list[tuple[float, float]]:
    """Time and cost at every cut, in seconds and joules."""
    hulls = [lower_hull(table)[::-1] for table in problem.tables]
    curves = [[(round(t_s * TENTHS), Fraction(e_j)) for t_s, e_j in hull] for hull in hulls]
    delays = [round(delay_s * TENTHS) for delay_s in problem.delay_s.tolist()]
    return [(ticks / TENTHS, float(cost)) for ticks, cost in embedded_cuts(problem, curves, delays)]


@given(seeds)
@settings(max_examples=40)
def test_every_cut_lies_on_the_sweeps_frontier(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 12)
    frontier, cuts = solve_frontier(problem), cuts_of(problem)
    assert cuts[0][0] == pytest.approx(frontier.t_star_s)
    assert cuts[-1][0] == pytest.approx(frontier.t_min_s)
    for time_s, cost_j in cuts:
        assert frontier.cost_at(max(time_s, frontier.t_min_s)) == pytest.approx(cost_j, abs=1e-6)
