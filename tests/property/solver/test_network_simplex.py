"""The relaxed frontier by another road: its dual, a circulation of least cost, by networkx."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import lower_hull, random_problem, seeds

from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import Problem

TENTHS = 10
"""Durations and delays of these problems are tenths of a second."""
UNITS = 10**6
"""Flow per watt: prices are quotients of small numbers, so that this is all that is rounded."""


def circulation(problem: Problem) -> tuple[nx.MultiDiGraph, float]:
    """The network without the arc that closes it, and the cost of all activities at their cheapest.

    An activity is an arc for each of its corners: a flow up to the price at which it would rather be faster
    has its length as gain, and the fastest one takes any flow.
    """
    graph, least_j = nx.MultiDiGraph(), 0.0
    graph.add_nodes_from(["source", "sink"], demand=0)
    for activity, table in enumerate(problem.table_of):
        corners = lower_hull(problem.tables[table])
        least_j += corners[0][1]
        start, end = ("start", activity), ("end", activity)
        graph.add_edge("source", start, weight=0)
        graph.add_edge(end, "sink", weight=0)
        below = 0
        for (slow_s, low_j), (fast_s, high_j) in pairwise(corners):
            price = round(UNITS * (high_j - low_j) / (slow_s - fast_s))
            graph.add_edge(start, end, weight=-round(slow_s * TENTHS), capacity=price - below)
            below = price
        graph.add_edge(start, end, weight=-round(corners[-1][0] * TENTHS))
    for before, after, delay_s in zip(problem.before, problem.after, problem.delay_s, strict=True):
        graph.add_edge(("end", int(before)), ("start", int(after)), weight=-round(delay_s * TENTHS))
    return graph, least_j


def least_cost_j(problem: Problem, time_tenths: int) -> float:
    """What the relaxed problem costs in that time: the optimum of its dual."""
    graph, least_j = circulation(problem)
    graph.add_edge("sink", "source", weight=time_tenths)
    gained, _ = nx.network_simplex(graph)
    return least_j - gained / (UNITS * TENTHS)


@given(seeds)
@settings(max_examples=40)
def test_the_frontier_is_the_dual_by_network_simplex(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 12)
    frontier = solve_frontier(problem)
    first, last = round(frontier.t_min_s * TENTHS), round(frontier.t_star_s * TENTHS)
    for tenths in np.unique(np.linspace(first, last + 2, 5).round().astype(int)).tolist():
        time_s = max(tenths / TENTHS, frontier.t_min_s)
        assert frontier.cost_at(time_s) == pytest.approx(least_cost_j(problem, tenths), abs=1e-4)


@given(seeds)
@settings(max_examples=40)
def test_the_least_time_is_the_longest_path_of_the_fastest(seed: int) -> None:
    problem = random_problem(seed, activities=2 + seed % 14)
    fastest_s = [float(problem.tables[table].duration_s.min()) for table in problem.table_of]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(problem)))
    for before, after, delay_s in zip(problem.before, problem.after, problem.delay_s, strict=True):
        graph.add_edge(int(before), int(after), weight=fastest_s[before] + float(delay_s))
    for activity, time_s in enumerate(fastest_s):
        graph.add_edge(activity, "sink", weight=time_s)
    assert solve_frontier(problem).t_min_s == pytest.approx(nx.dag_longest_path_length(graph))
