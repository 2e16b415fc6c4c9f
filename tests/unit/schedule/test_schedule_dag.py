import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import grid, schedule

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Dag, Instruction, Kind, dag_of, textbook
from perseus_ds.schedule.dag import LongestPaths

NODES = tuple(Instruction(stage, Kind.FORWARD, 0) for stage in range(12))
EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([0.0, 0.0, 0.5, 2.0])), max_size=40
)


def named_edges(dag: Dag) -> set[str]:
    return {f"{dag.nodes[a]}>{dag.nodes[b]}" for a, b in dag.edges}


def test_bare_orders_are_joined_by_data_between_stages_and_tied_reductions_are_one_node() -> None:
    dag = dag_of(schedule("0F0 0B0", "1F0 1B0", microbatches=1))
    assert named_edges(dag) == {"0F0>0B0", "0F0>1F0", "1F0>1B0", "1B0>0B0"}
    dag = dag_of(schedule("0F0 0B0 0RT0 0OS0", "1F0 1B0 1OS0", "2F0 2B0 2RT0 2OS0", microbatches=1))
    assert {"0B0>0RT0", "2B0>0RT0", "0RT0>0OS0", "0RT0>2OS0"} <= named_edges(dag)
    assert "2RT0" not in {str(node) for node in dag.nodes}


def test_streams_meet_in_transfers_that_hold_both_stages() -> None:
    dag = dag_of(streams := schedule("0F0 0SA0 0F1 0SA1", "1RA0 1F0 1RA1 1F1", microbatches=2))
    assert named_edges(dag) == {
        *("0F0>0SA0", "0SA0>0F1", "0F1>0SA1", "0SA0>1F0", "0SA1>1F1"),
        "1F0>0SA1",  # the rendezvous: stage 0 cannot send before stage 1 is ready to receive
    }
    assert not any(node.kind in {Kind.RECV_ACTIVATION, Kind.RECV_GRAD} for node in dag.nodes)
    assert [line.split("|")[1].split() for line in grid(streams).splitlines()] == [
        ["F0", "F1", "."],  # in a grid transfers take no step
        [".", "F0", "F1"],
    ]


@given(st.integers(1, 6), st.integers(1, 8))
def test_1f1b_takes_as_long_as_the_formula(stages: int, microbatches: int) -> None:
    """Source: arXiv 2104.04473, section 2.2.1: (m + p - 1)(t_f + t_b)."""
    dag = dag_of(textbook("1f1b", stages=stages, microbatches=microbatches))
    durations = [1.0 if node.kind is Kind.FORWARD else 2.0 for node in dag.nodes]
    ends = [start + length for start, length in zip(dag.earliest_starts(durations), durations, strict=True)]
    assert max(ends) == 3.0 * (microbatches + stages - 1)


def test_a_circle_is_a_value_and_an_error() -> None:
    nodes = tuple(map(Instruction.parse, ("0F0", "1F0", "0B0")))
    assert dag_of(schedule("0F0 0B0", microbatches=1)).cycle() == []
    circular = Dag(nodes, ((0, 1), (1, 0), (1, 2)))
    assert [str(i) for i in circular.cycle()] in (["0F0", "1F0", "0F0"], ["1F0", "0F0", "1F0"])
    with pytest.raises(ScheduleError, match=r".F0.*.F0.*.F0"):
        circular.topological()


@given(EDGES, st.lists(st.floats(0.0, 10.0), min_size=12, max_size=12))
def test_three_ways_to_the_earliest_ends_agree(
    edges: list[tuple[int, int, float]], lasts: list[float]
) -> None:
    """Compare one set of durations, many at once, and prepared passes that leave nothing for the next."""
    late_s = {(min(a, b), max(a, b)): late for a, b, late in edges if a != b}
    sends = {edge: (number, Kind.SEND_GRAD) for number, edge in enumerate(late_s)}
    dag, fixed_s = Dag(NODES, tuple(late_s), sends), {sends[edge]: late for edge, late in late_s.items()}
    paths = LongestPaths(dag.graph, dag.delays_s(fixed_s))
    for durations in (np.array(lasts), np.full(12, 7.0), np.array(lasts)):
        expected = np.array(dag.earliest_starts(durations.tolist(), fixed_s)) + durations
        ends = paths.ends(durations)
        assert paths.of_nodes(ends).tolist() == pytest.approx(expected.tolist())
        assert paths.over(ends) == pytest.approx(max(expected))
        together = dag.spans(np.column_stack([durations, 0.0 * durations]), fixed_s)[0][:, 0]
        assert together + durations == pytest.approx(expected)


def test_networkx_sees_the_same_graph() -> None:
    dag = dag_of(textbook("1f1b", stages=3, microbatches=4))
    graph = dag.to_networkx()
    assert [graph.nodes[str(node)]["kind"] for node in dag.nodes] == [node.kind.value for node in dag.nodes]
    assert {f"{a}>{b}" for a, b in graph.edges} == named_edges(dag)
    sends = {(str(dag.nodes[a]), str(dag.nodes[b])): send for (a, b), send in dag.buffered.items()}
    found = nx.get_edge_attributes(graph, "transfer")
    assert found == {edge: f"{stage}{kind.value}" for edge, (stage, kind) in sends.items()}
    assert nx.dag_longest_path_length(graph, weight=None) + 1 == 2 * (4 + 3 - 1)
    place = {str(dag.nodes[node]): index for index, node in enumerate(dag.topological())}
    assert all(place[a] < place[b] for a, b in graph.edges)


def test_what_crosses_ranks_is_named_after_its_send_and_delays_its_taker_alone() -> None:
    dag = dag_of(textbook("zbv", stages=4, microbatches=4))
    buffered = {(str(dag.nodes[a]), str(dag.nodes[b])): send for (a, b), send in dag.buffered.items()}
    assert buffered["0F0", "1F0"] == (0, Kind.SEND_ACTIVATION)
    assert buffered["3I1", "2I1"] == (3, Kind.SEND_GRAD)
    assert ("1F0", "2F0") not in buffered  # stages 1 and 2 are both on rank 1: the point of the V
    assert len(buffered) == 4 * 4  # 0 to 1 and 2 to 3, forwards and gradients, for 4 microbatches
    dag = dag_of(textbook("1f1b", stages=2, microbatches=2))
    starts = dag.earliest_starts([1.0] * len(dag.nodes), {(0, Kind.SEND_ACTIVATION): 0.25})
    at = dict(zip(map(str, dag.nodes), starts, strict=True))
    assert [at[name] for name in ("0F0", "0F1", "0B0", "0B1")] == [0.0, 1.0, 3.25, 5.25]
    assert [at[name] for name in ("1F0", "1B0", "1F1", "1B1")] == [1.25, 2.25, 3.25, 4.25]
