"""Every statement of a certificate by itself: what breaks that one alone is refused in its own words."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from perseus_ds.errors import SolverError
from perseus_ds.solver.check import check_frontier, check_plans
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import Frontier, dual_values, solve_frontier
from perseus_ds.solver.problem import OptionTable, Plans, Problem

SMALL = 1e-6
"""A thousand times what sums may be off by rounding: to be refused all the same."""

SHORT = OptionTable(np.array([1.0, 1.5, 2.5]), np.array([9.0, 6.0, 4.0]))
LONG = OptionTable(np.array([2.0, 2.6, 4.0]), np.array([20.0, 13.0, 8.0]))


def diamond(*tables: OptionTable, delay_s: float = 0.0) -> Problem:
    """0 and 1 start, both go on to 2 and to 3: every precedence carries a flow of its own."""
    before, after = np.array([[0, 0, 1, 1], [2, 3, 2, 3]], dtype=np.int32)
    table_of = np.array([0, 1, 1, 0], dtype=np.int32)
    return Problem(tables or (SHORT, LONG), table_of, before, after, np.full(4, delay_s))


def side_by_side() -> Problem:
    """Two activities that have nothing to do with each other: the longer one alone carries the flow."""
    nothing = np.zeros(0, dtype=np.int32)
    return Problem((SHORT, LONG), np.array([0, 1], dtype=np.int32), nothing, nothing, np.zeros(0))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return diamond(delay_s=0.1)


@pytest.fixture(scope="module")
def frontier(problem: Problem) -> Frontier:
    return solve_frontier(problem)


@pytest.fixture(scope="module")
def plans(problem: Problem, frontier: Frontier) -> Plans:
    return discretise(frontier, np.linspace(frontier.t_min_s, frontier.t_star_s, 9))


def with_durations(frontier: Frontier, changed: Callable[[np.ndarray], np.ndarray]) -> Frontier:
    """The same frontier, which says other durations than the times of its events."""

    class Other(Frontier):
        def durations_of(self, snapshot: int | Sequence[int]) -> np.ndarray:
            return changed(frontier.durations_of(snapshot))

    return Other(**{field.name: getattr(frontier, field.name) for field in dataclasses.fields(Frontier)})


def changed(record: object, field: str, row: object, value: Callable[[float], float]) -> object:
    values = getattr(record, field).copy()
    values[row] = value(values[row])
    return dataclasses.replace(record, **{field: values})


def refused(problem: Problem, frontier: Frontier, said: str) -> None:
    with pytest.raises(SolverError, match=said):
        check_frontier(problem, frontier)


def plans_refused(problem: Problem, plans: object, said: str, frontier: Frontier | None = None) -> None:
    with pytest.raises(SolverError, match=said):
        check_plans(problem, plans, frontier=frontier)


def test_what_is_right_passes_and_no_other_flow(problem: Problem, frontier: Frontier, plans: Plans) -> None:
    check_frontier(problem, frontier)
    check_plans(problem, plans, frontier=frontier)
    check_plans(problem, plans)
    unit = 10 ** (frontier.whole.price.digits - 6)
    for row, column in np.ndindex(frontier.flow.shape):
        more = changed(frontier, "flow", (row, column), lambda flow: flow + unit)
        refused(problem, more, "not conserved")
    for row in range(len(frontier.kept)):
        refused(problem, changed(frontier, "flow", row, lambda flow: flow * 2 + 10**9), "breakpoint")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("price_w", 1, lambda price_w: 9.0 * price_w), "price of time does not fall"),
        (("price_w", -1, lambda _: 0.0), "price of time does not fall"),
        *((("cost_j", row, lambda j: j + 1e-3), "costs and prices .* disagree") for row in (0, 2, -1)),
        (("cost_j", slice(None), lambda j: j + 1e-4), r"breakpoint \d+ costs .*, stated as"),
        (("flow", (0, 5), lambda _: -1), "is negative"),
        (("flow", slice(None), lambda flow: 2 * flow), "flow at breakpoint 0 is"),
    ],
)
def test_every_statement_of_a_frontier_is_checked(
    problem: Problem, frontier: Frontier, change: tuple[str, object, Callable[[float], float]], said: str
) -> None:
    refused(problem, changed(frontier, *change), said)


def test_durations_are_in_the_tables_and_no_path_is_too_long(problem: Problem, frontier: Frontier) -> None:
    slowest, fastest = np.array([2.5, 4.0, 4.0, 2.5]), np.array([1.0, 2.0, 2.0, 1.0])
    longer = with_durations(frontier, lambda s: 0.0 * s + slowest * (1 + SMALL))
    refused(problem, longer, "breakpoints from 0 on is outside table 0")
    shorter = with_durations(frontier, lambda s: 0.0 * s + fastest * (1 - SMALL))
    refused(problem, shorter, "is outside table 0")
    shorter = OptionTable(LONG.duration_s[:2], LONG.cost_j[:2])
    refused(diamond(SHORT, shorter, delay_s=0.1), frontier, "is outside table 1")
    late_s = np.array([0.0, 3e-6, 0.0, 0.0])
    later = with_durations(frontier, lambda own_s: np.minimum(own_s + late_s, slowest))
    refused(problem, later, "a path takes")


def test_what_enters_is_conserved_as_what_leaves_is() -> None:
    """Of two in a row the first has only a way out, the second only a way in; alone a flow has no way."""
    none = np.zeros(0, np.int32)
    one, pair = np.zeros(1, np.int32), np.array([0, 1], np.int32)
    row = Problem((SHORT, LONG), pair, one, one + 1, np.ones(1))
    found = solve_frontier(row)
    for column in (0, 1):
        more = changed(found, "flow", (0, column), lambda flow: flow + 10**found.whole.price.digits)
        refused(row, more, "not conserved")
    alone = Problem((SHORT,), one, none, none, np.zeros(0))
    refused(alone, changed(solve_frontier(alone), "flow", 0, lambda flow: -1 - flow), "is negative")


def test_the_flow_proves_the_cost() -> None:
    """The same flow through the shorter of two that are side by side proves less."""
    problem = side_by_side()
    frontier = solve_frontier(problem)
    check_frontier(problem, frontier)
    refused(problem, dataclasses.replace(frontier, flow=frontier.flow[:, ::-1].copy()), "its flow proves")


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        *((field, (-1, 3, 4), "plan 1 names an option") for field in ("choice", "other")),
        ("share", (0.0, -0.5, 1.0 + 1e-12, np.nan), "plan 1 has a share"),
    ],
)
def test_options_and_shares_are_possible(
    problem: Problem, plans: Plans, field: str, values: tuple[float, ...], said: str
) -> None:
    for value in values:
        plans_refused(problem, changed(plans, field, (1, 2), lambda _, value=value: value), said)


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        ("time_s", (1 + SMALL, 1 - SMALL, np.nan), "longest path of plan 1"),
        ("cost_j", (1 + SMALL, 1 - SMALL, np.nan), "plan 1 costs .*, stated as"),
        ("bound_j", (9.0, np.nan), "less than its bound"),
    ],
)
def test_a_plan_takes_and_costs_what_it_says(
    problem: Problem, plans: Plans, field: str, values: tuple[float, ...], said: str
) -> None:
    for factor in values:
        plans_refused(problem, changed(plans, field, 1, lambda own, factor=factor: own * factor), said)


def test_a_bound_is_no_more_than_its_flows_prove(problem: Problem, frontier: Frontier, plans: Plans) -> None:
    """Between proof and cost there is room where options are discrete: nothing else would notice."""
    proved_j = np.array([best_line(problem, frontier, time_s) for time_s in plans.time_s.tolist()])
    assert plans.bound_j == pytest.approx(proved_j)
    index = int(np.argmax(plans.cost_j - proved_j))
    assert plans.cost_j[index] - proved_j[index] > 1e-3
    above = changed(plans, "bound_j", index, lambda _: proved_j[index] + 1e-4)
    check_plans(problem, above)
    plans_refused(problem, above, "above what the flow proves", frontier)


def best_line(problem: Problem, frontier: Frontier, time_s: float) -> float:
    """The best that any of the flows proves, not only those around the time."""
    every = range(len(frontier.kept))
    flows_w = frontier.activity_flow(every), frontier.precedence_flow(every)
    lines = zip(*dual_values(problem, *flows_w), strict=True)
    return max(base_j - price_w * time_s for base_j, price_w in lines)
