"""What a sweep costs, and how it is diluted."""

from __future__ import annotations

import pytest

from perseus_ds.profile.sweep import SweepCost, SweepPace, WindowLength, clocks_held, cost_of, in_words

GRID = tuple(range(1410, 195, -15))


def cost(count: int, *, least: int = 2, iteration_s: float = 2.0) -> SweepCost:
    """Of a sweep on an A100 over so many clocks."""
    return cost_of(
        [1410 / mhz for mhz in clocks_held(GRID, count)],
        window=WindowLength(iteration_s, 6.0, least),
        most_slower_pct=8.0,
    )


def test_two_clocks_by_hand() -> None:
    """Two iterations and one behind them; then 2 of twice the length, for which 25 must run in all.

    Five of these come after them: one, one before the highest clock's window of two, and one behind it.
    """
    found = cost_of([1.0, 2.0], window=WindowLength(2.0, 4.0, 2), most_slower_pct=8.0)
    assert found == SweepCost(duration_s=2.0 * (25 + 2), lost_s=4.0)
    assert found.slower_pct <= 8.0


def test_minutes_are_said_as_minutes() -> None:
    assert [in_words(time_s) for time_s in (90.0, 240.0)] == ["90 s", "4 minutes"]


@pytest.mark.parametrize(("least", "iteration_s", "minutes"), [(2, 2.0, 2.1), (1, 15.0, 7.3)])
def test_the_usual_sweep_is_short_and_slows_training_little(
    least: int, iteration_s: float, minutes: float
) -> None:
    """Where work slows down as its clock does, which is the most that it can."""
    found = cost(5, least=least, iteration_s=iteration_s)
    assert found.slower_pct <= 8.0
    assert found.duration_s <= 60.0 * minutes


def test_what_really_passed_is_counted() -> None:
    pace = SweepPace(8.0)
    for iteration_s in (2.0, 2.0, 2.6):
        pace.record_measured(iteration_s, resting=iteration_s == 2.0)
    assert pace.took_s == pytest.approx(6.6)
    assert pace.slower_pct(1.5) == pytest.approx(10.0), "not by the one that was seen before it"


def paced(resting_s: list[float], at_the_clock_s: float) -> SweepPace:
    """A window that was expected to last twice as long, after iterations at default clocks."""
    pace = SweepPace(8.0)
    pace.record_expected(len(resting_s))
    for iteration_s in resting_s:
        pace.record_measured(iteration_s, resting=True)
    pace.record_expected(2, 2.0)
    for _ in range(2):
        pace.record_measured(at_the_clock_s, resting=False)
    return pace


def test_what_was_lost_is_what_was_seen_where_that_is_less() -> None:
    assert paced([2.0] * 6, 3.0).slowdown_lower_bound == pytest.approx(1.0)
    assert paced([2.0] * 6, 5.0).slowdown_lower_bound == 2.0, "no more than expected"
    assert paced([2.0] * 3, 3.0).slowdown_lower_bound == 2.0, "three iterations show nothing"
    assert paced([2.0] * 6, 3.0).baseline_iterations_needed(2, 1.5) < paced(
        [2.0] * 6, 4.0
    ).baseline_iterations_needed(2, 1.5)


def test_iterations_that_vary_are_no_proof_of_a_smaller_loss() -> None:
    varied = [1.8, 2.2, 1.9, 2.1, 2.0, 2.0]
    error = 2.0 * (sum((one - 2.0) ** 2 for one in varied) / 6 / 5) ** 0.5 / 2.0
    assert paced(varied, 3.0).slowdown_lower_bound == pytest.approx(1.0 + 8 * error)
    assert paced([1.0, 3.0] * 3, 3.0).slowdown_lower_bound == 2.0


def test_a_window_has_fewer_iterations_where_they_last_longer_but_never_too_few() -> None:
    length = WindowLength(2.0, 6.0, 2)
    assert [length.at(slower) for slower in (1.0, 1.28, 1.49, 1.5, 1.99, 5.0)] == [3, 3, 3, 2, 2, 2]
    assert WindowLength(15.0, 6.0).at() == 1


def test_how_long_iterations_will_last_is_expected_only_once_it_was_seen() -> None:
    assert SweepPace(8.0).slowdown_factor(2.0) == 1.0
    assert paced([2.0] * 3, 3.0).slowdown_factor(2.0) == 1.0, "three iterations show nothing"
    assert paced([2.0] * 6, 3.0).slowdown_factor(1.6) == pytest.approx(1.3), "half as much slower as expected"
    assert paced([2.0] * 6, 5.0).slowdown_factor(1.6) == pytest.approx(1.6), "at most"
