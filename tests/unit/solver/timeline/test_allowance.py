"""How often lanes may change: what a rung allows, lane by lane and together."""

import numpy as np
import pytest

from perseus_ds.solver.prices import Rung
from perseus_ds.solver.timeline import Allowance

PAIRS = np.array([0, 0, 1], np.int32)


@pytest.mark.parametrize(
    ("allowance", "changes", "allowed"),
    [
        (Allowance(), [9, 9, 9], True),
        (Allowance(4.0), [4, 4, 4], True),
        (Allowance(4.0), [4, 5, 4], False),
        (Allowance(None, 8.0, PAIRS), [4, 4, 8], True),
        (Allowance(None, 8.0, PAIRS), [5, 4, 0], False),
        (Allowance(4.0, 8.0, PAIRS), [4, 4, 5], False),
        (Allowance(None, 8.0), [4, 4, 1], False),
    ],
)
def test_a_rung_allows_what_every_lane_and_every_group_may(
    allowance: Allowance, changes: list[int], *, allowed: bool
) -> None:
    assert allowance.within(1.0, 3).allows(np.array(changes)) is allowed


@pytest.mark.parametrize(("asked", "first"), [(12, [12, 10]), (13, [13, 12]), (1, [1])])
def test_a_rung_that_stands_on_the_ladder_is_searched_once(asked: int, first: list[int]) -> None:
    rungs = [rung.lane for rung in Rung(asked, None, np.zeros(2, np.int32)).from_itself()]
    assert rungs[: len(first)] == first
    assert len(set(rungs)) == len(rungs)
