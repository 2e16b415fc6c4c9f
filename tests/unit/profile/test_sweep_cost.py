"""What a sweep costs, how it is diluted, and how many clocks a budget allows."""

from __future__ import annotations

import pytest

from perseus_ds.profile.next_clock import usual_clocks
from perseus_ds.profile.sweep_cost import SweepCost, SweepPace, cost_of, most_clocks

GRID = tuple(range(1410, 195, -15))


def cost(count: int, *, iterations: int = 3, iteration_s: float = 2.0) -> SweepCost:
    """Of a sweep on an A100 over so many clocks."""
    return cost_of(
        [1410 / mhz for mhz in usual_clocks(GRID, count)],
        iterations=iterations,
        iteration_s=iteration_s,
        most_slower_pct=8.0,
    )


def test_two_clocks_by_hand() -> None:
    """Two iterations and one behind them; then 2 of twice the length, for which 25 must have run by then."""
    found = cost_of([1.0, 2.0], iterations=2, iteration_s=2.0, most_slower_pct=8.0)
    assert found == SweepCost(lasts_s=2.0 * (25 + 1 + 2), lost_s=4.0)
    assert found.slower_pct <= 8.0


def test_minutes_are_said_as_minutes() -> None:
    assert str(SweepCost(240.0, 13.6)) == "about 4 minutes, training up to 6 % slower meanwhile"


@pytest.mark.parametrize(("iterations", "iteration_s", "minutes"), [(3, 2.0, 3.0), (1, 15.0, 6.5)])
def test_the_usual_sweep_is_short_and_slows_training_little(
    iterations: int, iteration_s: float, minutes: float
) -> None:
    """Where work slows down as its clock does, which is the most that it can."""
    found = cost(5, iterations=iterations, iteration_s=iteration_s)
    assert found.slower_pct <= 8.0
    assert found.lasts_s <= 60.0 * minutes


def test_what_really_passed_is_counted() -> None:
    pace = SweepPace(8.0)
    for iteration_s in (2.0, 2.0, 2.6):
        pace.took(iteration_s, resting=iteration_s == 2.0)
    assert pace.took_s == pytest.approx(6.6)
    assert pace.slower_pct(1.5) == pytest.approx(10.0), "not by the one that was seen before it"


@pytest.mark.parametrize("budget_s", [60.0, 100.0, 120.0, 1e9])
def test_a_budget_allows_as_many_clocks_as_fit_and_no_more(budget_s: float) -> None:
    count = most_clocks(budget_s, 8, cost)
    assert cost(count).lasts_s <= budget_s
    assert count == 8 or cost(count + 1).lasts_s > budget_s


def test_two_clocks_are_measured_whatever_the_budget() -> None:
    assert most_clocks(1.0, 8, cost) == 2
    assert most_clocks(1.0, 1, cost) == 1
