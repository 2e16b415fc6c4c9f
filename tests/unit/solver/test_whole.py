"""A problem in whole ticks: limits are kept and nothing is given away."""

import numpy as np
import pytest

from perseus_ds.solver.network import LARGEST, LONGEST, unit_for, whole_of
from perseus_ds.solver.problem import OptionTable, Problem


def test_a_time_is_kept_to_the_tick_and_none_is_given_away() -> None:
    """A float says a time more finely than a tick (1e-14 s) does: the nearest tick may lie beyond it."""
    table = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))
    none = np.zeros(0, dtype=np.int32)
    whole = whole_of(Problem((table,), np.zeros(1, dtype=np.int32), none, none, np.zeros(0)))
    for time_s in np.random.default_rng(1).uniform(1.1, 1.9, 200).tolist():
        ticks = np.array([0, 1]) + whole.within(time_s)
        kept_s, beyond_s = whole.tick.real(ticks)
        assert kept_s <= time_s < beyond_s


def test_at_the_shortest_time_the_fastest_options_are_within() -> None:
    table = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))
    chain = np.array([0, 1], dtype=np.int32), np.array([1, 2], dtype=np.int32)
    whole = whole_of(Problem((table,), np.zeros(3, dtype=np.int32), *chain, np.array([0.1, 0.2])))
    assert whole.within(3.3 * (1.0 - 1e-15)) == whole.longest(whole.fastest)


@pytest.mark.parametrize(("total", "digits"), [(1.0, 15), (100.0, 15), (1e6, 12), (9e9, 8)])
def test_a_unit_leaves_room_for_the_longest_path(total: float, digits: int) -> None:
    """One value below 10**15 units, and all of them one after the other below 2**61 = 2.3 * 10**18."""
    unit = unit_for("durations", np.array([1.0, 0.5]), total=total)
    assert unit.digits == digits
    assert unit.whole(np.array(1.0)) <= LARGEST
    assert total * 10**digits <= LONGEST
