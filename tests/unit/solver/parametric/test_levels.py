"""Levels of nodes: what an earlier measuring left is below the ground, also where levels begin anew."""

import numpy as np
import pytest

from perseus_ds.schedule import dag_of, textbook
from perseus_ds.solver import OptionTable, Problem
from perseus_ds.solver.parametric.network import network_of
from perseus_ds.solver.parametric.state import HIGHEST, start_of
from perseus_ds.solver.parametric.sweep import room_for, sweep
from perseus_ds.solver.whole import whole_of

GROUND = 3  # of a sweep's tally


def swept(ground: int) -> tuple[list[list[int]], int]:
    """All breakpoints of a pipeline of like stages, whose paths tie; and the ground after them."""
    dag = dag_of(textbook("1f1b", stages=3, microbatches=4))
    table = OptionTable(np.array([1.0, 1.2, 1.5]), np.array([9.0, 6.0, 5.0]))
    before, after = np.array(dag.edges, np.int32).T
    count = len(dag.nodes)
    whole = whole_of(Problem((table,), np.zeros(count, np.int32), before, after, np.zeros(len(before))))
    network, _ = network_of(whole)
    state, found = start_of(whole, network), room_for(64, network)
    state.tally[GROUND] = ground
    many = sweep(state, whole.longest(whole.fastest), found)
    assert 0 < many < len(found.total)
    return [column[:many].tolist() for column in found], int(state.tally[GROUND])


@pytest.mark.parametrize("below", [0, 5, 40])
def test_levels_that_would_outgrow_their_field_begin_anew(below: int) -> None:
    anew, ground = swept(HIGHEST - below)
    assert anew == swept(0)[0]
    assert 0 < ground < HIGHEST // 2
