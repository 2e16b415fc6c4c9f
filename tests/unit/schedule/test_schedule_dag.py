import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import schedule

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Dag, Instruction, Kind, dag_of, grid, textbook


def named_edges(dag: Dag) -> set[str]:
    return {f"{dag.nodes[a]}>{dag.nodes[b]}" for a, b in dag.edges}


def test_bare_orders_are_joined_by_the_data_between_stages() -> None:
    dag = dag_of(schedule("0F0 0B0", "1F0 1B0", microbatches=1))
    assert named_edges(dag) == {"0F0>0B0", "0F0>1F0", "1F0>1B0", "1B0>0B0"}


def test_streams_meet_in_transfers_that_hold_both_stages() -> None:
    dag = dag_of(schedule("0F0 0SA0 0F1 0SA1", "1RA0 1F0 1RA1 1F1", microbatches=2))
    assert named_edges(dag) == {
        "0F0>0SA0",
        "0SA0>0F1",
        "0F1>0SA1",
        "0SA0>1F0",
        "1F0>0SA1",  # the rendezvous: stage 0 cannot send before stage 1 is ready to receive
        "0SA1>1F1",
    }
    assert not any(node.kind in {Kind.RECV_ACTIVATION, Kind.RECV_GRAD} for node in dag.nodes)


def test_tied_reduction_is_one_node_for_all_who_take_part() -> None:
    dag = dag_of(schedule("0F0 0B0 0RT0 0OS0", "1F0 1B0 1OS0", "2F0 2B0 2RT0 2OS0", microbatches=1))
    assert {"0B0>0RT0", "2B0>0RT0", "0RT0>0OS0", "0RT0>2OS0"} <= named_edges(dag)
    assert "2RT0" not in {str(node) for node in dag.nodes}


@given(st.integers(1, 6), st.integers(1, 8), st.sampled_from(["1f1b", "gpipe"]))
def test_topological_order_respects_every_edge(stages: int, microbatches: int, name: str) -> None:
    dag = dag_of(textbook(name, stages=stages, microbatches=microbatches))
    place = {node: index for index, node in enumerate(dag.topological())}
    assert len(place) == len(dag.nodes) == 2 * stages * microbatches
    assert all(place[before] < place[after] for before, after in dag.edges)


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


@given(st.sampled_from(["1f1b", "gpipe", "interleaved"]), st.integers(0, 2**32 - 1))
def test_many_sets_of_durations_start_as_each_does_alone(name: str, seed: int) -> None:
    schedule = textbook(name, stages=4, microbatches=4)
    dag, random = dag_of(schedule), np.random.default_rng(seed)
    durations = random.uniform(0.1, 2.0, (len(dag.nodes), 3))
    together = dag.starts_of_many(durations, {})
    for column in range(3):
        assert together[:, column] == pytest.approx(dag.earliest_starts(durations[:, column].tolist()))


def test_in_a_grid_transfers_take_no_step() -> None:
    streams = schedule("0F0 0SA0 0F1 0SA1", "1RA0 1F0 1RA1 1F1", microbatches=2)
    assert [line.split("|")[1].split() for line in grid(streams).splitlines()] == [
        ["F0", "F1", "."],
        [".", "F0", "F1"],
    ]


def test_networkx_sees_the_same_graph() -> None:
    dag = dag_of(textbook("1f1b", stages=3, microbatches=4))
    graph = dag.to_networkx()
    assert [graph.nodes[str(node)]["kind"] for node in dag.nodes] == [node.kind.value for node in dag.nodes]
    assert {f"{a}>{b}" for a, b in graph.edges} == named_edges(dag)
    found = {f"{a}>{b}": send for (a, b), send in nx.get_edge_attributes(graph, "transfer").items()}
    assert found == {
        f"{dag.nodes[a]}>{dag.nodes[b]}": f"{stage}{kind.value}"
        for (a, b), (stage, kind) in dag.buffered.items()
    }
    assert nx.dag_longest_path_length(graph, weight=None) + 1 == 2 * (4 + 3 - 1)
    place = {str(dag.nodes[node]): index for index, node in enumerate(dag.topological())}
    assert all(place[a] < place[b] for a, b in graph.edges)
