"""What a sweep costs, and how many clocks a budget allows."""

from __future__ import annotations

import pytest

from perseus_ds.profile.sweep import candidate_clocks
from perseus_ds.profile.sweep_cost import SweepCost, cost_of, most_clocks

GRID = tuple(range(1410, 195, -15))


def cost(count: int) -> SweepCost:
    """Of a sweep on an A100 over so many clocks, with iterations of 2 s of which three are measured."""
    return cost_of(candidate_clocks(GRID, count), highest_mhz=1410, iterations=3, iteration_s=2.0, settling=6)


def test_two_clocks_by_hand() -> None:
    """Five iterations of 2 s at 1000 MHz, five of 4 s at 500 MHz, three before."""
    found = cost_of([1000, 500], highest_mhz=1000, iterations=3, iteration_s=2.0, settling=3)
    assert found == SweepCost(lasts_s=36.0, lost_s=10.0)
    assert found.slower_pct == pytest.approx(100.0 * 10.0 / 26.0)
    assert str(found) == "at most 36 s, training up to 38 % slower meanwhile"


def test_minutes_are_said_as_minutes() -> None:
    assert str(SweepCost(240.0, 13.6)) == "at most 4 minutes, training up to 6 % slower meanwhile"


@pytest.mark.parametrize("budget_s", [60.0, 100.0, 120.0, 1e9])
def test_a_budget_allows_as_many_clocks_as_fit_and_no_more(budget_s: float) -> None:
    count = most_clocks(budget_s, 12, cost)
    assert cost(count).lasts_s <= budget_s
    assert count == 12 or cost(count + 1).lasts_s > budget_s


def test_two_clocks_are_measured_whatever_the_budget() -> None:
    assert most_clocks(1.0, 12, cost) == 2
    assert most_clocks(1.0, 1, cost) == 1
