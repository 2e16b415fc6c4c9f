import pytest
from schedules import schedule

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Instruction, dag_of, textbook, validate, with_rendezvous


def test_megatrons_1f1b() -> None:
    """Render a line per rank: a commit waits for all that was queued since the last."""
    written = with_rendezvous(textbook("1f1b", stages=2, microbatches=2))
    assert [" ".join(map(str, order)) for order in written.orders] == [
        "0F0 0SA0 0CM0 0F1 0SA1 0RG0 0CM1 0B0 0RG1 0CM2 0B1",
        "1RA0 1CM0 1F0 1B0 1SG0 1RA1 1CM1 1F1 1B1 1SG1 1CM2",
    ]


def test_results_that_stay_on_their_rank_are_not_sent() -> None:
    written = with_rendezvous(textbook("zbv", stages=4, microbatches=3))
    assert not {i for order in written.orders for i in order} & set(map(Instruction.parse, ("1SA0", "2RA0")))


@pytest.mark.parametrize(("kind", "start_s"), [("buffered", 2.0), ("rendezvous", 5.0)])
def test_a_slow_receiver_holds_its_sender_up_unless_there_are_buffers(kind: str, start_s: float) -> None:
    bare = textbook("gpipe", stages=2, microbatches=4)
    dag = dag_of(with_rendezvous(bare) if kind == "rendezvous" else bare)
    lengths_s = [(4.0 if node.stage else 1.0) if node.kind.is_computation else 0.0 for node in dag.nodes]
    at = dict(zip(map(str, dag.nodes), dag.earliest_starts(lengths_s), strict=True))
    assert at["0F2"] == start_s


COMMITTED = {
    "sends and receives at once": ("0F0 0SA0 0CM0", "1RA0 1CM0 1F0", ""),
    "no commit": ("0F0 0CM0 0SA0", "1RA0 1CM0 1F0", "0SA0 is queued, and no commit follows it"),
    "received too late": (
        "0F0 0SA0 0CM0",
        "1RA0 1F0 1CM0",
        "1F0 waits for what 0F0 makes, and no 1RA0 before it brings it",
    ),
    "sent too early": (
        "0SA0 0CM0 0F0",
        "1RA0 1CM0 1F0",
        "1F0 waits for what 0F0 makes, and no 0SA0 after it sends it",
    ),
    "not sent at all": (
        "0F0 0F1 0SA0 0CM0",
        "1RA0 1CM0 1F0 1F1",
        "1F1 waits for what 0F1 makes, and no 0SA1 after it sends it",
    ),
}


@pytest.mark.parametrize(("first", "second", "why"), COMMITTED.values(), ids=COMMITTED)
def test_what_is_queued_goes_with_the_next_commit(first: str, second: str, why: str) -> None:
    queued = schedule(first, second, microbatches=2)
    if not why:
        dag = dag_of(queued)
        edges = {(str(dag.nodes[a]), str(dag.nodes[b])) for a, b in dag.edges}
        start = {("0F0", "0SA0"), ("0F0", "0CM0"), ("0SA0", "0CM0")}
        assert edges == start | {("0SA0", "1CM0"), ("1CM0", "1F0")}
        return
    with pytest.raises(ScheduleError, match=why):
        dag_of(queued)


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
