"""What a lane may choose from: levels that some hull uses, and one level each where nothing may change."""

import numpy as np

from perseus_ds.solver.network import whole_of
from perseus_ds.solver.prices import Lanes, leveled
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.timeline import one_level_each

ONE_AFTER_THE_OTHER = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32), np.zeros(1)
BOTH = np.array([0, 1], dtype=np.int32)


def two_in_a_row(*tables: OptionTable) -> Problem:
    return Problem(tables, BOTH % len(tables), *ONE_AFTER_THE_OTHER)


def test_a_level_that_lies_above_every_hull_is_not_offered() -> None:
    """Of 1, 2 and 3 s at 9, 8 and 1 J the middle one costs more than half of either end."""
    table = OptionTable(np.array([1.0, 2.0, 3.0]), np.array([9.0, 8.0, 1.0]))
    lanes = Lanes((BOTH,), (np.array([0, 1, 2], dtype=np.int32),))
    choices, levels = leveled(whole_of(two_in_a_row(table)), lanes)
    assert choices.option.tolist() == [0, 2]
    assert levels.place.tolist() == [[0, 1]]


def test_one_level_for_a_lane_keeps_the_time_and_gives_the_most() -> None:
    """Twice 1, 1.5 or 2 s: within 3 s both run at the middle level, within 2.9 s at the highest."""
    table = OptionTable(np.array([1.0, 1.5, 2.0]), np.array([9.0, 4.0, 1.0]))
    lanes = Lanes((BOTH,), (np.array([0, 1, 2], dtype=np.int32),))
    whole = whole_of(two_in_a_row(table))
    choices, levels = leveled(whole, lanes)
    for time_s, option in ((2.0, 0), (2.9, 0), (3.0, 1), (3.9, 1), (4.0, 2)):
        places = one_level_each(whole, choices, lanes, levels, whole.within(time_s))
        assert places is not None
        assert choices.option[places].tolist() == [option, option]
    assert one_level_each(whole, choices, lanes, levels, whole.within(2.0) - 1) is None
