"""A problem in whole ticks, and the levels of its nodes."""

import numpy as np
import pytest

from perseus_ds.schedule import dag_of, textbook
from perseus_ds.solver.network import LARGEST, LONGEST, network_of, unit_for, whole_of
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.sweep import HIGH, HIGHEST, room_for, start_of, sweep

ONE_OR_TWO = OptionTable(np.array([1.0, 2.0]), np.array([4.0, 1.0]))


def test_a_time_is_kept_to_the_tick_and_none_is_given_away() -> None:
    """A float says a time more finely than a tick (1e-14 s) does: the nearest tick may lie beyond it."""
    none = np.zeros(0, dtype=np.int32)
    whole = whole_of(Problem((ONE_OR_TWO,), np.zeros(1, dtype=np.int32), none, none, np.zeros(0)))
    for time_s in np.random.default_rng(1).uniform(1.1, 1.9, 200).tolist():
        ticks = np.array([0, 1]) + whole.within(time_s)
        kept_s, beyond_s = whole.tick.real(ticks)
        assert kept_s <= time_s < beyond_s
    chain = np.array([0, 1], dtype=np.int32), np.array([1, 2], dtype=np.int32)
    whole = whole_of(Problem((ONE_OR_TWO,), np.zeros(3, dtype=np.int32), *chain, np.array([0.1, 0.2])))
    assert whole.within(3.3 * (1.0 - 1e-15)) == whole.longest(whole.fastest), "the shortest time"


@pytest.mark.parametrize(("total", "digits"), [(1.0, 15), (100.0, 15), (1e6, 12), (9e9, 8)])
def test_a_unit_leaves_room_for_the_longest_path(total: float, digits: int) -> None:
    """One value below 10**15 units, and all of them one after the other below 2**61 = 2.3 * 10**18."""
    unit = unit_for("durations", np.array([1.0, 0.5]), total=total)
    assert unit.digits == digits
    assert unit.whole(np.array(1.0)) <= LARGEST
    assert total * 10**digits <= LONGEST


# Levels of nodes begin anew where they would outgrow their field.


def problem(stages: int, microbatches: int) -> Problem:
    """A pipeline of like stages, whose paths tie."""
    dag = dag_of(textbook("1f1b", stages=stages, microbatches=microbatches))
    table = OptionTable(np.array([1.0, 1.2, 1.5]), np.array([9.0, 6.0, 5.0]))
    before, after = np.array(dag.edges, np.int32).T
    return Problem((table,), np.zeros(len(dag.nodes), np.int32), before, after, np.zeros(len(before)))


def swept(ground: int) -> tuple[list[list[int]], int]:
    whole = whole_of(problem(3, 4))
    network, _ = network_of(whole)
    state, found = start_of(whole, network), room_for(64, network)
    state.tally[HIGH] = ground
    many = sweep(state, whole.longest(whole.fastest), found, 1, 1)
    assert 0 < many < len(found.total)
    return [column[:many].tolist() for column in found], int(state.tally[HIGH])


@pytest.mark.parametrize("below", [0, 5, 40])
def test_levels_that_would_outgrow_their_field_begin_anew(below: int) -> None:
    anew, ground = swept(HIGHEST - below)
    assert anew == swept(0)[0]
    assert 0 < ground < HIGHEST // 2
