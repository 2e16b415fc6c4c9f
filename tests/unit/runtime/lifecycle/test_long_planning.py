"""Long planning is told after a minute, and ever more seldom."""

from __future__ import annotations

from perseus_ds.runtime.lifecycle.batches.long_planning import LONG_S, LongPlanning


def test_nothing_is_said_within_a_minute() -> None:
    long = LongPlanning()
    assert not any(long.is_due(second) for second in range(int(LONG_S)))


def test_a_planner_that_hangs_for_a_day_is_told_eleven_times() -> None:
    long = LongPlanning()
    told = [second for second in range(24 * 3600) if long.is_due(second)]
    assert told == [60 * 2**doubling for doubling in range(11)]
