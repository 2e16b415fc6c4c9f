"""Who is behind its plan, and what a straggler loses by clocks that are asked for ahead: nothing."""

import numpy as np

from perseus_ds.straggler.replica_plans import Pace


def told(pace: Pace, *ratios: list[float]) -> list[bool]:
    for ratio in ratios:
        pace.observe(np.array(ratio))
    return pace.behind.tolist()


def test_twice_in_a_row_behind_is_behind_and_twice_on_time_is_not() -> None:
    pace = Pace(2)
    assert told(pace, [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.0], [1.0, 1.1]) == [False, False]
    assert told(pace, [1.0, 1.1]) == [False, True]
    assert told(pace, [1.0, 1.0]) == [False, True]
    assert told(pace, [1.01, 1.01]) == [False, False]


def test_what_is_not_known_says_nothing() -> None:
    pace = Pace(1)
    assert told(pace, [1.2], [np.nan], [0.0], [1.2]) == [True]
    assert told(pace, [np.nan], [np.nan]) == [True]
