"""Instructions, schedules that are refused with a picture, transfers that wait for each other, the graph."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import grid, schedule

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of, textbook, validate, with_rendezvous
from perseus_ds.schedule.dag import LongestPaths

GOOD_1 = "1F0 1B0 1F1 1B1"
BAD = [
    ("0F0 0F1 0F0 0B0 0B1", "0F0 runs twice", "stage 0 | F0  F1  →F0 B0  B1"),
    ("0B0 0F0 0F1 0B1", "0B0 runs before 0F0", "stage 0 | →B0 F0  F1  B1"),
    ("0F0 0F1 0B0", "0B1 never runs", "stage 0 | F0 F1 B0 →?"),
    ("0F0 0F1 0B0 0B1 0F2", "0F2 is beyond 2 microbatches", "stage 0 | F0  F1  B0  B1  →F2"),
    ("0F0 0F1 0I0 0B0 0W0 0B1", "0B0 runs twice: 0I0 did its work", "stage 0 | F0  F1  I0  →B0 W0  B1"),
    (
        "0F0 1F1 0B0 0B1",
        "1F1 stands in the order of rank 0, but stage 1 runs on rank 1",
        "rank 0 | 0F0  →1F1 0B0  0B1",
    ),
]


@pytest.mark.parametrize(("order", "why", "row"), BAD)
def test_refusal_shows_the_whole_grid_with_an_arrow_at_the_bad_cell(order: str, why: str, row: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        validate(schedule(order, GOOD_1, microbatches=2))
    first, *drawn = str(caught.value).splitlines()
    assert first == why
    assert drawn[0] == row
    assert [cell.removeprefix("1") for cell in drawn[1].split()[3:]] == ["F0", "B0", "F1", "B1"]


def test_stages_that_wait_for_each_other_are_named_in_a_circle() -> None:
    # Stage 0 wants the gradient of microbatch 1 first, stage 1 can only give that of microbatch 0 first.
    deadlock = schedule("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", microbatches=2)
    with pytest.raises(ScheduleError, match="never ends") as caught:
        validate(deadlock)
    first, *drawn = str(caught.value).splitlines()
    circle = first.removeprefix("the schedule never ends: ").split(" waits for ")
    assert circle[0] == circle[-1]
    assert set(circle) == {"0F1", "0B0", "1B0", "1F1"}
    assert "→" in "".join(drawn)


def test_a_transfer_without_its_other_end_and_a_schedule_without_stages_are_refused() -> None:
    with pytest.raises(ScheduleError, match="0SA0") as caught:
        validate(schedule("0F0 0SA0 0B0", "1F0 1B0", microbatches=1))
    assert "SA0 B0" in str(caught.value)
    with pytest.raises(ScheduleError, match=r"1RA0.*0SA0"):
        validate(schedule("0F0 0B0", "1RA0 1F0 1B0", microbatches=1))
    with pytest.raises(ScheduleError, match="no stage"):
        validate(Schedule("empty", 1, ()))
    with pytest.raises(ScheduleError, match="rank 1 runs no stage"):
        validate(schedule("0F0 0B0", "", microbatches=1))
    with pytest.raises(ScheduleError, match="0B0 runs before 0F0"):
        validate(schedule("1F0+0B0", microbatches=1))


numbers = st.integers(0, 10**6)
alone = [kind for kind in Kind if kind is not Kind.FORWARD_BACKWARD]
instructions = st.builds(Instruction, numbers, st.sampled_from(alone), numbers) | st.builds(
    Instruction, numbers, st.just(Kind.FORWARD_BACKWARD), numbers, st.tuples(numbers, numbers)
)


def test_prints_as_stage_kind_microbatch_where_letters_say_what_follows_the_clock() -> None:
    assert str(Instruction(2, Kind.FORWARD, 0)) == "2F0"
    assert str(Instruction(10, Kind.SEND_GRAD, 7)) == "10SG7"
    assert str(Instruction(2, Kind.FORWARD_BACKWARD, 5, backward=(0, 3))) == "2F5+0B3"
    assert len({kind.value for kind in Kind}) == len(Kind)
    assert {kind.value for kind in Kind if kind.is_computation} == {"F", "B", "I", "W", "FB", "XC"}
    assert {kind.value for kind in Kind if kind.is_transfer} == {"SA", "RA", "SG", "RG"}


@given(instructions)
def test_parses_back_what_it_printed(instruction: Instruction) -> None:
    assert Instruction.parse(str(instruction)) == instruction


OTHER = ["2F", "2Q0", "2f0", "-1F0", "2F0.5", "٢F0", "2FB0", "2F5+0F3", "2B5+0B3", "2F5+0B"]


@pytest.mark.parametrize("text", [*OTHER, "", "F0", " 2F0", "2F0\n"])
def test_refuses_other_text_and_says_the_kinds(text: str) -> None:
    with pytest.raises(ScheduleError, match="kinds: F"):
        Instruction.parse(text)


def test_megatrons_1f1b_and_what_stays_on_its_rank() -> None:
    """Render a line per rank: a commit waits for all that was queued since the last."""
    written = with_rendezvous(textbook("1f1b", stages=2, microbatches=2))
    assert [" ".join(map(str, order)) for order in written.orders] == [
        "0F0 0SA0 0CM0 0F1 0SA1 0RG0 0CM1 0B0 0RG1 0CM2 0B1",
        "1RA0 1CM0 1F0 1B0 1SG0 1RA1 1CM1 1F1 1B1 1SG1 1CM2",
    ]
    written = with_rendezvous(textbook("zbv", stages=4, microbatches=3))
    assert not {i for order in written.orders for i in order} & set(map(Instruction.parse, ("1SA0", "2RA0")))


@pytest.mark.parametrize(("kind", "start_s"), [("buffered", 2.0), ("rendezvous", 5.0)])
def test_a_slow_receiver_holds_its_sender_up_unless_there_are_buffers(kind: str, start_s: float) -> None:
    bare = textbook("gpipe", stages=2, microbatches=4)
    dag = dag_of(with_rendezvous(bare) if kind == "rendezvous" else bare)
    lengths_s = [(4.0 if node.stage else 1.0) if node.kind.is_computation else 0.0 for node in dag.nodes]
    at = dict(zip(map(str, dag.nodes), dag.earliest_starts(lengths_s), strict=True))
    assert at["0F2"] == start_s


def test_what_is_queued_goes_with_the_next_commit() -> None:
    dag = dag_of(schedule("0F0 0SA0 0CM0", "1RA0 1CM0 1F0", microbatches=2))
    edges = {f"{dag.nodes[a]}>{dag.nodes[b]}" for a, b in dag.edges}
    assert edges == {"0F0>0SA0", "0F0>0CM0", "0SA0>0CM0", "0SA0>1CM0", "1CM0>1F0"}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("0F0 0CM0 0SA0", "1RA0 1CM0 1F0", "0SA0 is queued, and no commit follows it"),
        ("0F0 0SA0 0CM0", "1RA0 1F0 1CM0", "1F0 waits for what 0F0 makes, and no 1RA0 before it brings it"),
        ("0SA0 0CM0 0F0", "1RA0 1CM0 1F0", "1F0 waits for what 0F0 makes, and no 0SA0 after it sends it"),
        ("0F0 0F1 0SA0 0CM0", "1RA0 1CM0 1F0 1F1", "1F1 waits for what 0F1 makes, and no 0SA1 after it"),
    ],
    ids=["no commit", "received too late", "sent too early", "not sent at all"],
)
def test_what_no_commit_brings_in_time_is_refused(first: str, second: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        dag_of(schedule(first, second, microbatches=2))


def test_two_ways_in_one_commit_do_not_wait_for_each_other() -> None:
    both = schedule(
        "0F0 0SA0 0CM0 0F1 0SA1 0RG0 0CM1 0B0 0RG1 0CM2 0B1",
        "1RA0 1CM0 1F0 1B0 1SG0 1RA1 1CM1 1F1 1B1 1SG1 1CM2",
        microbatches=2,
    )
    validate(both)
    one_by_one = schedule(
        "0F0 0SA0 0F1 0SA1 0RG0 0B0 0RG1 0B1", "1RA0 1F0 1B0 1SG0 1RA1 1F1 1B1 1SG1", microbatches=2
    )
    with pytest.raises(ScheduleError, match="0SA1"):
        validate(one_by_one)


# The graph of an iteration: who waits for whom, and for how long.

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
def test_three_ways_to_earliest_ends_agree(edges: list[tuple[int, int, float]], lasts: list[float]) -> None:
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
