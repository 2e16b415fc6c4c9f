"""Prepared passes over a graph find what the plain pass finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.schedule import Dag, Instruction, Kind, dag_of, textbook
from perseus_ds.schedule.dag import LongestPaths

EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([0.0, 0.0, 0.5, 2.0])), max_size=40
)
NODES = tuple(Instruction(stage, Kind.FORWARD, 0) for stage in range(12))


@given(EDGES, st.lists(st.floats(0.0, 10.0), min_size=12, max_size=12))
def test_ends_are_those_of_the_plain_pass(edges: list[tuple[int, int, float]], lasts: list[float]) -> None:
    """Whatever number of nodes one waits for, each with a delay of its own."""
    late_s = {(min(a, b), max(a, b)): late for a, b, late in edges if a != b}
    sends = {edge: (number, Kind.SEND_GRAD) for number, edge in enumerate(late_s)}
    dag, fixed_s = Dag(NODES, tuple(late_s), sends), {sends[edge]: late for edge, late in late_s.items()}
    paths = LongestPaths(dag.graph, dag.delays_s(fixed_s))
    ends = paths.ends(np.array(lasts))
    expected = np.array(dag.earliest_starts(lasts, fixed_s)) + lasts
    assert [ends[paths.place(node)] for node in range(12)] == pytest.approx(expected.tolist())
    assert paths.over(ends) == pytest.approx(max(expected))


@pytest.mark.parametrize("stages", [1, 3])
def test_a_pass_leaves_nothing_for_the_next(stages: int) -> None:
    dag = dag_of(textbook("1f1b", stages=stages, microbatches=5))
    paths = LongestPaths(dag.graph, dag.delays_s({}))
    first, _, again = (paths.ends(np.full(len(dag.nodes), lasts)) for lasts in (1.0, 7.0, 1.0))
    assert first == again
    assert paths.over(first) == 2.0 * (5 + stages - 1)
