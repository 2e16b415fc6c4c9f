"""Every statement of a certificate by itself: what breaks that one alone is refused in its own words."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from perseus_ds.errors import SolverError
from perseus_ds.solver.check import check_frontier, check_plans
from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import (
    Frontier,
    activity_flow,
    dual_values,
    members_of,
    precedence_flow,
    solve_frontier,
)
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
    return discretise(problem, frontier, np.linspace(frontier.t_min_s, frontier.t_star_s, 9))


def with_durations(frontier: Frontier, changed: Callable[[np.ndarray], np.ndarray]) -> Frontier:
    """The same frontier, which says other durations than the times of its events."""

    class Other(Frontier):
        def durations_at(self, time_s: float) -> np.ndarray:
            return changed(frontier.durations_at(time_s))

    return Other(**{field.name: getattr(frontier, field.name) for field in dataclasses.fields(Frontier)})


def changed(record: object, field: str, row: object, value: Callable[[float], float]) -> object:
    values = getattr(record, field).copy()
    values[row] = value(values[row])
    return dataclasses.replace(record, **{field: values})


def refused(problem: Problem, frontier: Frontier, said: str) -> None:
    with pytest.raises(SolverError, match=said):
        check_frontier(problem, frontier)


def test_what_is_right_passes(problem: Problem, frontier: Frontier, plans: Plans) -> None:
    check_frontier(problem, frontier)
    check_plans(problem, plans, frontier=frontier)
    check_plans(problem, plans)


def test_prices_fall_and_stay_above_nothing(problem: Problem, frontier: Frontier) -> None:
    said = "price of time does not fall"
    refused(problem, changed(frontier, "price_w", 1, lambda _: frontier.price_w[0]), said)
    refused(problem, changed(frontier, "price_w", -1, lambda _: 0.0), said)


@pytest.mark.parametrize("row", [0, 2, -1])
def test_costs_are_what_the_prices_sum_up_to(problem: Problem, frontier: Frontier, row: int) -> None:
    refused(problem, changed(frontier, "cost_j", row, lambda j: j + 1e-3), "costs and prices .* disagree")


def test_durations_are_within_the_problems_own_tables(problem: Problem, frontier: Frontier) -> None:
    slowest, fastest = np.array([2.5, 4.0, 4.0, 2.5]), np.array([1.0, 2.0, 2.0, 1.0])
    said = "breakpoints from 0 on is outside table 0"
    refused(problem, with_durations(frontier, lambda _: slowest * (1 + SMALL)), said)
    refused(problem, with_durations(frontier, lambda _: fastest * (1 - SMALL)), "is outside table 0")
    shorter = OptionTable(LONG.duration_s[:2], LONG.cost_j[:2])
    refused(diamond(SHORT, shorter, delay_s=0.1), frontier, "is outside table 1")


def test_no_path_is_longer_than_the_time(problem: Problem, frontier: Frontier) -> None:
    longer_s, slowest_s = np.array([0.0, 3e-6, 0.0, 0.0]), np.array([2.5, 4.0, 4.0, 2.5])
    later = with_durations(frontier, lambda own_s: np.minimum(own_s + longer_s, slowest_s))
    refused(problem, later, "a path takes")


def test_durations_cost_what_the_breakpoint_says(problem: Problem, frontier: Frontier) -> None:
    dearer = dataclasses.replace(frontier, cost_j=frontier.cost_j + 1e-4)
    refused(problem, dearer, r"breakpoint \d+ costs .*, stated as")


def test_no_flow_is_negative(problem: Problem, frontier: Frontier) -> None:
    crossing = len(problem) + 1
    refused(problem, changed(frontier, "flow", (0, crossing), lambda _: -1), "is negative")
    one = Problem((SHORT,), np.zeros(1, np.int32), *(np.zeros(0, np.int32),) * 2, np.zeros(0))
    alone = solve_frontier(one)
    refused(one, dataclasses.replace(alone, flow=-1 - alone.flow), "is negative")


def test_no_number_of_the_flow_can_be_another(problem: Problem, frontier: Frontier) -> None:
    unit = 10 ** (frontier.whole.price.digits - 6)
    for row, column in np.ndindex(frontier.flow.shape):
        more = changed(frontier, "flow", (row, column), lambda flow: flow + unit)
        refused(problem, more, "not conserved")


def test_what_enters_is_conserved_as_what_leaves_is() -> None:
    """Of two in a row the first has only a way out, the second only a way in."""
    pair = Problem(
        (SHORT, LONG),
        np.array([0, 1], np.int32),
        np.array([0], np.int32),
        np.array([1], np.int32),
        np.ones(1),
    )
    found = solve_frontier(pair)
    unit = 10**found.whole.price.digits
    for column in (0, 1):
        refused(pair, changed(found, "flow", (0, column), lambda flow: flow + unit), "not conserved")


def test_the_flow_is_worth_the_price(problem: Problem, frontier: Frontier) -> None:
    refused(problem, dataclasses.replace(frontier, flow=2 * frontier.flow), "flow at breakpoint 0 is")


def test_the_flow_proves_the_cost() -> None:
    """The same flow through the shorter of two that are side by side proves less."""
    problem = side_by_side()
    frontier = solve_frontier(problem)
    check_frontier(problem, frontier)
    refused(problem, dataclasses.replace(frontier, flow=frontier.flow[:, ::-1].copy()), "its flow proves")


def test_every_snapshot_is_looked_at(problem: Problem, frontier: Frontier) -> None:
    for row in range(len(frontier.kept)):
        refused(problem, changed(frontier, "flow", row, lambda flow: flow * 2 + 10**9), "breakpoint")


def plans_refused(problem: Problem, plans: object, said: str, frontier: Frontier | None = None) -> None:
    with pytest.raises(SolverError, match=said):
        check_plans(problem, plans, frontier=frontier)


@pytest.mark.parametrize("field", ["choice", "other"])
@pytest.mark.parametrize("option", [-1, 3, 4])
def test_every_option_is_in_its_table(problem: Problem, plans: Plans, field: str, option: int) -> None:
    plans_refused(problem, changed(plans, field, (1, 2), lambda _: option), "plan 1 names an option")


@pytest.mark.parametrize("share", [0.0, -0.5, 1.0 + 1e-12, np.nan])
def test_a_share_is_above_nothing_and_at_most_all(problem: Problem, plans: Plans, share: float) -> None:
    plans_refused(problem, changed(plans, "share", (1, 2), lambda _: share), "plan 1 has a share")


@pytest.mark.parametrize("factor", [1 + SMALL, 1 - SMALL, np.nan])
def test_a_plan_takes_what_it_says(problem: Problem, plans: Plans, factor: float) -> None:
    plans_refused(problem, changed(plans, "time_s", 1, lambda s: s * factor), "longest path of plan 1")


@pytest.mark.parametrize("more_j", [1e-4, -1e-4, np.nan])
def test_a_plan_costs_what_it_says(problem: Problem, plans: Plans, more_j: float) -> None:
    plans_refused(problem, changed(plans, "cost_j", 1, lambda j: j + more_j), "plan 1 costs .*, stated as")


def test_a_bound_is_not_above_the_cost(problem: Problem, plans: Plans) -> None:
    above = changed(plans, "bound_j", 1, lambda _: plans.cost_j[1] + 1e-4)
    plans_refused(problem, above, "less than its bound")


def test_a_bound_is_not_above_what_its_flows_prove(
    problem: Problem, frontier: Frontier, plans: Plans
) -> None:
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
    flows_w = activity_flow(frontier, every), precedence_flow(frontier, every)
    lines = zip(*dual_values(problem, members_of(problem), *flows_w), strict=True)
    return max(base_j - price_w * time_s for base_j, price_w in lines)
