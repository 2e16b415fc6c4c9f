"""Plans within a budget of changes: what is counted, never too many; one clock for every GPU."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import solver_cases

from perseus_ds.errors import InfeasibleError
from perseus_ds.plan import ChangeBudget, build
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, dag_of, textbook
from perseus_ds.solver.check import check_plans
from perseus_ds.solver.discrete import Timelines, changes_of, levels_of, timelines
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.network import graph_of, longest_seconds
from perseus_ds.solver.problem import UNLIMITED, Budget, Lanes, OptionTable, Plans, Problem, blend

STAGES, MICROBATCHES = 3, 5
CLOCKS = 4
LEVELS = np.arange(CLOCKS, dtype=np.int32)


def pipeline(seed: int) -> tuple[Problem, Lanes]:
    """A 1F1B iteration with noisy curves of its own for every stage and kind."""
    rng, stretch = np.random.default_rng(seed), np.linspace(1.0, 1.5, CLOCKS)
    tables = {}
    for stage, (kind, scale_s) in product(range(STAGES), (("F", 0.05), ("B", 0.1))):
        base_s = scale_s * (1.0 + 0.3 * rng.random())
        cost_j = 100.0 * base_s * (0.4 + rng.random() + 1.0 / stretch**3)
        tables[stage, kind] = OptionTable(base_s * stretch, cost_j)
    problem = solver_cases.pipeline(tables, stages=STAGES, microbatches=MICROBATCHES)
    lanes = np.split(np.arange(len(problem), dtype=np.int32), STAGES)
    return problem, Lanes(tuple(lanes), tuple(LEVELS for _ in tables))


def planned(
    problem: Problem, lanes: Lanes, budget: ChangeBudget, *, at: float = 1.0, part_s: float = 0.0
) -> Plans:
    frontier = solve_frontier(problem)
    times_s = np.array([at * frontier.t_min_s])
    return timelines(frontier, times_s, lanes, partial(budget.within, STAGES), least_part_s=part_s)


@pytest.mark.parametrize(
    ("choice", "other", "changes"),
    [
        ([1, 1, 1], [1, 1, 1], 0),
        ([0, 1, 1], [0, 1, 1], 2),  # down after the first, and back for the next iteration
        ([0, 1, 2], [0, 1, 2], 3),
        ([0, 0, 0], [0, 1, 0], 2),  # within the second, and up at its end
        ([0, 1, 1], [1, 1, 0], 2),  # within the first and within the last: none between iterations
        ([0, 1, 1], [1, 1, 1], 2),
    ],
)
def test_changes_count_within_between_and_back(choice: list[int], other: list[int], changes: int) -> None:
    problem = side_by_side(4, [9.0, 4.0, 1.0], [1.0, 2.0, 4.0])
    lanes = Lanes((np.arange(3, dtype=np.int32), np.array([3], np.int32)), (LEVELS[:3],))
    found = Timelines(np.array([[*choice, 0]]), np.array([[*other, 0]]), np.full((1, 4), 0.5))
    assert changes_of(problem, lanes, found).tolist() == [[changes, 0]]


def side_by_side(count: int, cost_j: list[float], duration_s: list[float]) -> Problem:
    """Activities of one table that do not wait for each other."""
    table, none = OptionTable(np.array(duration_s), np.array(cost_j)), np.zeros(0, np.int32)
    return Problem((table,), np.zeros(count, np.int32), none, none, np.zeros(0))


def test_what_a_budget_allows_and_spares() -> None:
    budget = Budget(3, 5, np.array([0, 0, 1], np.int32))
    asked = [3, 2, 3], [4, 0, 0], [3, 3, 0]
    assert [budget.allows(np.array(one)) for one in asked] == [True, False, False]
    assert budget.changes_left(np.array([1, 0, 3])).tolist() == [2, 3, 0]
    assert budget.changes_left(np.array([1, 0, 3]), shared=True).tolist() == [2, 2, 0]
    assert ChangeBudget(10.0).within(3, 0.35).lane == 3
    assert ChangeBudget(10.0).within(3, 0.3).lane == 3  # rounding loses none


def test_stricter_budgets_are_the_same_ones_for_all_that_are_looser() -> None:
    everyone = np.zeros(2, dtype=np.int32)
    for kind in ("lane", "group"):
        loose, tight = (
            [getattr(one, kind) for one in Budget(**limits, group_of=everyone).ladder()]
            for limits in ({"lane": UNLIMITED, "group": UNLIMITED} | {kind: most} for most in (40, 20))
        )
        assert loose[: len(tight)] == tight == sorted(set(tight))
        assert tight[:9] == list(range(9))
        assert 15 < tight[-1] <= 20 < loose[-1] <= 40


def test_a_level_that_lies_above_every_hull_is_not_offered() -> None:
    """Of 1, 2 and 3 s at 9, 8 and 1 J the middle one costs more than half of either end."""
    problem = side_by_side(2, [9.0, 8.0, 1.0], [1.0, 2.0, 3.0])
    lanes = Lanes((np.array([0, 1], np.int32),), (LEVELS[:3],))
    assert levels_of(solve_frontier(problem), lanes).option.tolist() == [[0, 2]]


@pytest.mark.parametrize("seed", range(20))
def test_without_changes_no_choice_of_one_level_for_each_lane_is_better(seed: int) -> None:
    problem, lanes = pipeline(seed)
    time_s = (1.0 + 0.02 * seed) * solve_frontier(problem).t_min_s
    choice = np.zeros((CLOCKS**STAGES, len(problem)), np.int32)
    for row, levels in enumerate(product(range(CLOCKS), repeat=STAGES)):
        for order, level in zip(lanes.orders, levels, strict=True):
            choice[row, order] = level
    duration_s, cost_j = blend(problem, choice, choice, np.ones(choice.shape))
    fits = longest_seconds(problem, graph_of(problem), duration_s) <= time_s * (1.0 + 1e-9)
    found = planned(problem, lanes, ChangeBudget(0.0), at=1.0 + 0.02 * seed)
    assert found.cost_j[0] == pytest.approx(cost_j.sum(axis=1)[fits].min(), rel=1e-3)


@pytest.mark.parametrize("limit", ["per_gpu_per_s", "per_node_per_s"])
@pytest.mark.parametrize("part_s", [0.0, 0.02, np.inf])
def test_no_plan_changes_too_often_lasts_too_long_or_has_parts_too_short(limit: str, part_s: float) -> None:
    problem, lanes = pipeline(1)
    budget, at = ChangeBudget(**{limit: 4.0}), 1.04
    plans = planned(problem, lanes, budget, at=at, part_s=part_s)
    check_plans(problem, plans, frontier=solve_frontier(problem))
    changes = changes_of(problem, lanes, Timelines(plans.choice, plans.other, plans.share))
    assert budget.within(STAGES, float(plans.time_s[0])).allows(changes[0])
    assert changes.any()
    assert plans.time_s[0] <= at * solve_frontier(problem).t_min_s * (1.0 + 1e-9)
    ones = np.ones(plans.share.shape)
    first_s, rest_s = (blend(problem, one, one, ones)[0] for one in (plans.choice, plans.other))
    parts_s = np.minimum(plans.share * first_s, (1.0 - plans.share) * rest_s)[plans.share < 1.0]
    assert (parts_s >= part_s * (1.0 - 1e-6)).all()
    assert np.isinf(part_s) == (not len(parts_s))


def test_a_time_that_no_plan_of_so_few_changes_keeps_is_refused() -> None:
    problem, lanes = pipeline(0)
    tables = tuple(
        OptionTable(table.duration_s * np.where(number % 2 == LEVELS, 0.5, 1.0), table.cost_j)
        for number, table in enumerate(problem.tables)
    )
    with pytest.raises(InfeasibleError, match="seldom"):
        planned(replace(problem, tables=tables), lanes, ChangeBudget(per_node_per_s=0.5))


# One clock for every GPU: against all combinations where these can be counted.

CLOCKS_MHZ = (1400, 1200, 1000, 800)
WEIGHTS = (1.0, 0.8, 0.9)
WAITING_W = 50.0


def point(clock_mhz: int, weight: float) -> Point:
    at = clock_mhz / CLOCKS_MHZ[0]
    time_s = weight / at
    return Point(clock_mhz, time_s, (100.0 + 250.0 * at**2.5) * time_s)


@pytest.mark.parametrize("microbatches", [2, 6])
def test_no_combination_of_clocks_is_better(microbatches: int) -> None:
    profile = Profile(
        {
            (stage, kind): tuple(point(mhz, times * weight) for mhz in CLOCKS_MHZ)
            for stage, weight in enumerate(WEIGHTS)
            for kind, times in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0))
        }
    )
    schedule = textbook("1f1b", stages=3, microbatches=microbatches)
    switching = Switching(split="never", budget=ChangeBudget(0.0))
    plans = build(profile, schedule, blocking_power_w=WAITING_W, reserve_pct=0.0, switching=switching)
    dag, best = dag_of(schedule), list[tuple[float, float]]()
    for clocks in product(range(len(CLOCKS_MHZ)), repeat=3):
        points = [profile.of(node.stage, node.kind)[clocks[node.stage]] for node in dag.nodes]
        lasts = [one.time_s for one in points]
        time_s = max(at + own for at, own in zip(dag.earliest_starts(lasts), lasts, strict=True))
        best.append((time_s, sum(one.energy_j - WAITING_W * one.time_s for one in points)))
    for time_s, cost_j in zip(plans.iteration_time_s, plans.effective_energy_j, strict=True):
        least_j = min(own_j for own_s, own_j in best if own_s <= time_s * (1.0 + 1e-9))
        assert cost_j <= least_j * 1.001
    assert len(plans) > 5
