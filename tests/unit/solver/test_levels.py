"""Levels of nodes begin anew where they would outgrow their field."""

import numpy as np
import pytest

from perseus_ds.schedule import dag_of, textbook
from perseus_ds.solver.network import network_of, whole_of
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.sweep import HIGH, HIGHEST, room_for, start_of, sweep


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
