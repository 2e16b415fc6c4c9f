"""Prepared passes over a graph find what the plain pass finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.schedule import dag_of, textbook
from perseus_ds.schedule.dag import LongestPaths, packed, starts

EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([0.0, 0.0, 0.5, 2.0])), max_size=40
)


@given(EDGES, st.lists(st.floats(0.0, 10.0), min_size=12, max_size=12))
def test_ends_are_those_of_the_plain_pass(edges: list[tuple[int, int, float]], lasts: list[float]) -> None:
    """Whatever number of nodes one waits for, each with a delay of its own."""
    arcs = [(min(a, b), max(a, b), late) for a, b, late in edges if a != b]
    before, after = (np.array([arc[side] for arc in arcs], dtype=np.int32) for side in (0, 1))
    graph, delay = packed(12, before, after), [arc[2] for arc in arcs]
    paths = LongestPaths(graph, delay)
    ends = paths.ends(np.array(lasts))
    expected = np.array(starts(graph, delay, lasts)) + lasts
    assert [ends[paths.place(node)] for node in range(12)] == pytest.approx(expected.tolist())
    assert paths.over(ends) == pytest.approx(max(expected))


@pytest.mark.parametrize("stages", [1, 3])
def test_a_pass_leaves_nothing_for_the_next(stages: int) -> None:
    dag = dag_of(textbook("1f1b", stages=stages, microbatches=5))
    paths = LongestPaths(dag.graph, dag.delays_s({}))
    first, _, again = (paths.ends(np.full(len(dag.nodes), lasts)) for lasts in (1.0, 7.0, 1.0))
    assert first == again
    assert paths.over(first) == 2.0 * (5 + stages - 1)
