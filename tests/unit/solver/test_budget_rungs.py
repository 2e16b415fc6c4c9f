"""Rungs of a budget: the same ones whoever asks, what they allow, and prices that prove a bound."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.prices import Rung
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.timeline import Allowance, Lanes, timelines

STAGES, MICROBATCHES = 3, 5
CLOCKS = 4


def pipeline(seed: int) -> tuple[Problem, Lanes]:
    """A 1F1B iteration with noisy curves of its own for every stage and kind."""
    rng = np.random.default_rng(seed)
    tables = []
    for scale_s in (0.05, 0.1) * STAGES:
        stretch = np.linspace(1.0, 1.5, CLOCKS)
        base_s = scale_s * (1.0 + 0.3 * rng.random())
        tables.append(OptionTable(base_s * stretch, 100.0 * base_s * (0.4 + rng.random() + 1.0 / stretch**3)))
    orders = []
    for stage in range(STAGES):
        warm = min(STAGES - stage, MICROBATCHES)
        order = [(stage, "F", m) for m in range(warm)]
        for m in range(MICROBATCHES):
            order.append((stage, "B", m))
            if warm + m < MICROBATCHES:
                order.append((stage, "F", warm + m))
        orders.append(order)
    number = {node: at for at, node in enumerate(node for order in orders for node in order)}
    edges = [(number[a], number[b]) for order in orders for a, b in pairwise(order)]
    for m in range(MICROBATCHES):
        edges.append((number[STAGES - 1, "F", m], number[STAGES - 1, "B", m]))
        for stage in range(STAGES - 1):
            edges.append((number[stage, "F", m], number[stage + 1, "F", m]))
            edges.append((number[stage + 1, "B", m], number[stage, "B", m]))
    table_of = np.array([2 * stage + (kind == "B") for stage, kind, _ in number], np.int32)
    before, after = np.array(sorted(set(edges)), np.int32).T
    problem = Problem(tuple(tables), table_of, before.copy(), after.copy(), np.zeros(len(before)))
    lanes = Lanes(
        tuple(np.array([number[node] for node in order], np.int32) for order in orders),
        tuple(np.arange(CLOCKS, dtype=np.int32) for _ in tables),
    )
    return problem, lanes


def test_rungs_below_a_loose_limit_contain_those_below_a_strict_one() -> None:
    group_of = np.zeros(2, np.int32)
    loose, strict = ([rung.lane for rung in Rung(most, None, group_of).down()] for most in (40, 13))
    assert loose[-len(strict) :] == strict
    assert strict[0] == 12
    assert strict[-1] == 1
    assert [rung.group for rung in Rung(None, 3, group_of).down()] == [3, 2, 1]


def test_what_a_rung_allows_and_spares() -> None:
    rung = Rung(3, 5, np.array([0, 0, 1], np.int32))
    assert rung.allows(np.array([3, 2, 3]))
    assert not rung.allows(np.array([4, 0, 0]))
    assert not rung.allows(np.array([3, 3, 0]))
    assert rung.spare(np.array([1, 0, 3])).tolist() == [2, 2, 0]
    assert Allowance(10.0).within(0.35, 3).lane == 3


def test_a_time_that_no_plan_of_so_few_changes_keeps_is_refused() -> None:
    problem, lanes = pipeline(0)
    tables = tuple(
        OptionTable(table.duration_s * np.where(np.arange(CLOCKS) == number % 2, 0.5, 1.0), table.cost_j)
        for number, table in enumerate(problem.tables)
    )
    problem = replace(problem, tables=tables)
    frontier = solve_frontier(problem)
    with pytest.raises(InfeasibleError, match="seldom"):
        timelines(problem, frontier, np.array([frontier.t_min_s]), lanes, Allowance(group_per_s=0.5))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_a_budget_is_never_worse_than_a_stricter_one(seed: int) -> None:
    """At the shortest time, by lane and by group; never below the bound without a budget."""
    problem, lanes = pipeline(seed)
    frontier = solve_frontier(problem)
    times_s = np.array([frontier.t_min_s])
    for limit in ("lane_per_s", "group_per_s"):
        costs_j = []
        for changes in (1, 2, 3, 5, 9):
            allowance = Allowance(**{limit: changes / frontier.t_min_s})
            plans = timelines(problem, frontier, times_s, lanes, allowance)
            costs_j.append(float(plans.cost_j[0]))
            assert plans.cost_j[0] >= plans.bound_j[0] - 1e-9
        assert costs_j == sorted(costs_j, reverse=True)
        assert costs_j[0] > costs_j[-1]
