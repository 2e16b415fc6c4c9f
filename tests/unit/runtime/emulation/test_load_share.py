"""What a load is worth in work, and that every stage works on what the first one counts."""

from collections import defaultdict, deque

import pytest

from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import LoadShare, SharedLoads
from perseus_ds.schedule import Instruction, Kind, Load

FORWARD = Instruction(1, Kind.FORWARD, 1)
TERMS, MEAN = (0.1, 0.6, 0.3), Load(100.0, 4000.0)


class Post:
    """Numbers on their way between two ranks, in order."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int], deque[float]] = defaultdict(deque)

    def send(self, to: int, tag: int, moment_s: float) -> None:
        self.boxes[to, tag].append(moment_s)

    def of(self, rank: int) -> "Inbox":
        return Inbox(self, rank)


class Inbox:
    def __init__(self, post: Post, rank: int) -> None:
        self.post, self.rank, self.send = post, rank, post.send

    def receive(self, source: int, tag: int) -> float:
        del source
        return self.post.boxes[self.rank, tag].popleft()


def both(post: Post) -> list[LoadShare]:
    """What the ranks of two stages take a load for."""
    return [
        LoadShare(TERMS, MEAN, SharedLoads(post.of(rank), first=0, others=[1 - rank], rank=rank))
        for rank in (0, 1)
    ]


def test_all_stages_work_on_what_the_first_one_knows_beforehand() -> None:
    post = Post()
    first, second = both(post)
    first.iteration_begins(Batch(2, loads=(Load(100.0, 4000.0), Load(300.0, 40000.0))))
    second.iteration_begins(Batch(2))
    for stage, one in enumerate((first, second)):
        for kind, shape in ((Kind.FORWARD, Load(50.0, 0.0)), (Kind.BACKWARD, None)):
            assert one.share(Instruction(stage, kind, 1), shape) == pytest.approx(4.9)
    assert not any(post.boxes.values())


@pytest.mark.parametrize("counts", [True, False])
def test_all_stages_work_on_what_the_first_one_counts_at_its_forwards(counts: bool) -> None:  # noqa: FBT001
    """A batch that is not known beforehand: the second stage's own shape is what it takes without a count."""
    post = Post()
    first, second = both(post)
    shape = Load(50.0, 0.0)
    for tokens in (100.0, 300.0):
        for one in (first, second):
            one.iteration_begins(Batch(2))
        for stage, one in enumerate((first, second)):
            for microbatch in (0, 1):
                counted = Load(tokens * (1 + microbatch), 0.0) if counts else None
                found = one.share(Instruction(stage, Kind.FORWARD, microbatch), shape if stage else counted)
                own = 0.1 + 0.6 * 0.5 if stage else 1.0
                wanted = 0.1 + 0.6 * tokens / 100.0 * (1 + microbatch) if counts else own
                assert found == pytest.approx(wanted)
                assert one.share(Instruction(stage, Kind.BACKWARD, microbatch), None) == found
    assert not any(post.boxes.values())


def test_a_batch_of_another_order_leaves_nothing_behind() -> None:
    """Until a size is known its forwards may be taken for the first one: the next batch is right again."""
    post = Post()
    first, second = both(post)
    for orders in (((0, 0, 0), (0, 0, 0)), ((0, 1, 2), (0, 1, 2)), ((0, 1, 2), (1, 2, 5)), ((0, 1), (0, 1))):
        for one in (first, second):
            one.iteration_begins(Batch(len(orders[0])))
        known = [Load(100.0 * (1 + n), 0.0) for n in range(len(orders[0]))]
        for microbatch, load in zip(orders[0], known, strict=True):
            first.share(Instruction(0, Kind.FORWARD, microbatch), load)
        found = [second.share(Instruction(1, Kind.FORWARD, one), Load(50.0, 0.0)) for one in orders[1]]
        if orders[0] == orders[1] == tuple(range(len(known))):
            assert found == pytest.approx([0.1 + 0.6 * (1 + n) for n in range(len(known))])


def test_without_terms_work_is_in_proportion_to_the_first_microbatch() -> None:
    share = LoadShare()
    share.iteration_begins(Batch(2))
    assert [share.share(FORWARD, Load(tokens)) for tokens in (50.0, 100.0, 25.0)] == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"load_terms": [0.1, 0.9]}, "load_terms: got"),
        ({"load_terms": [0.1, 0.9, -0.1], "mean_load": [1, 1]}, r"load_terms\[2\]"),
        ({"load_terms": [0.1, 0.6, 0.3]}, "belong together"),
        ({"load_terms": [0.1, 0.6, 0.3], "mean_load": [0, 1]}, r"mean_load\[0\]"),
    ],
)
def test_terms_that_mean_nothing_are_refused(block: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        simulated_settings(block)
    assert simulated_settings({"load_terms": [0.1, 0.6, 0.3], "mean_load": [9, 9]}) == SimulatedSettings(
        load_terms=(0.1, 0.6, 0.3), mean_load=(9, 9)
    )
