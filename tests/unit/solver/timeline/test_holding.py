"""How often a lane changes its level in an iteration, and for how long it holds each."""

import numpy as np
import pytest

from perseus_ds.solver.network import whole_of
from perseus_ds.solver.prices import Lanes
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.timeline import Timelines, changes_of, shortest_holds_s

TABLE = OptionTable(np.array([1.0, 2.0, 4.0]), np.array([9.0, 4.0, 1.0]))
LEVELS = np.array([0, 1, 2], dtype=np.int32)


def in_a_row(count: int, *, delay_s: float = 0.0) -> Problem:
    """Activities of one table, one after the other."""
    every = np.arange(count, dtype=np.int32)
    return Problem((TABLE,), np.zeros(count, np.int32), every[:-1], every[1:], np.full(count - 1, delay_s))


def lane_of(count: int) -> Lanes:
    return Lanes((np.arange(count, dtype=np.int32),), (LEVELS,))


def plan(choice: list[int], other: list[int], share: list[float]) -> Timelines:
    return Timelines(np.array([choice], np.int32), np.array([other], np.int32), np.array([share]))


@pytest.mark.parametrize(
    ("choice", "other", "changes"),
    [
        ([1, 1, 1], [1, 1, 1], 0),
        ([0, 1, 1], [0, 1, 1], 2),  # down after the first, and back for the next iteration
        ([0, 1, 0], [0, 1, 0], 2),
        ([0, 1, 2], [0, 1, 2], 3),
        ([0, 0, 0], [0, 1, 0], 2),  # within the second, and up at its end
        ([0, 1, 1], [1, 1, 0], 2),  # within the first and within the last: none between iterations
        ([0, 1, 1], [1, 1, 1], 2),
    ],
)
def test_changes_are_counted_within_between_and_back_to_the_beginning(
    choice: list[int], other: list[int], changes: int
) -> None:
    found = plan(choice, other, [1.0 if a == b else 0.5 for a, b in zip(choice, other, strict=True)])
    assert changes_of(in_a_row(3), lane_of(3), found).tolist() == [[changes]]


def test_every_lane_is_counted_by_itself_and_other_activities_not_at_all() -> None:
    lanes = Lanes((np.array([0, 2], np.int32), np.array([1], np.int32)), (LEVELS,))
    found = plan([0, 2, 1, 2], [0, 2, 1, 1], [1.0, 1.0, 1.0, 0.5])
    assert changes_of(in_a_row(4), lanes, found).tolist() == [[2, 0]]


def test_the_shortest_hold_runs_from_change_to_change() -> None:
    """1 s high, 2 s and 2 s at the middle, high again with the next iteration: held for 1 and 4 s."""
    found = plan([0, 1, 1], [0, 1, 1], [1.0, 1.0, 1.0])
    whole = whole_of(in_a_row(3))
    assert shortest_holds_s(whole, lane_of(3), found.row(0)).tolist() == pytest.approx([1.0])


def test_the_last_level_is_held_into_the_next_iteration() -> None:
    """Low for 4 s between 1 s and 1 s high, which are one hold of 2 s around the iteration's end."""
    found = plan([0, 2, 0], [0, 2, 0], [1.0, 1.0, 1.0])
    whole = whole_of(in_a_row(3))
    assert shortest_holds_s(whole, lane_of(3), found.row(0)).tolist() == pytest.approx([2.0])


def test_a_change_within_an_activity_comes_after_its_share_of_the_first_option() -> None:
    """A quarter of the first at 1 s, the rest at 2 s: high for 0.25 s of an iteration of 3.75 s."""
    found = plan([0, 1], [1, 1], [0.25, 1.0])
    whole = whole_of(in_a_row(2))
    assert shortest_holds_s(whole, lane_of(2), found.row(0)).tolist() == pytest.approx([0.25])


def test_who_never_changes_holds_for_ever_and_waits_count_as_held() -> None:
    still, apart = plan([1, 1], [1, 1], [1.0, 1.0]), plan([0, 1], [0, 1], [1.0, 1.0])
    assert shortest_holds_s(whole_of(in_a_row(2)), lane_of(2), still.row(0)).tolist() == [np.inf]
    waiting = whole_of(in_a_row(2, delay_s=3.0))
    assert shortest_holds_s(waiting, lane_of(2), apart.row(0)).tolist() == pytest.approx([2.0])
