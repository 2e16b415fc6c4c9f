"""What a load is worth in work, and that every stage works on what the first one counts."""

from collections import defaultdict, deque

import pytest

from perseus_ds.device.simulated import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation.load_share import LoadShare, SharedLoads
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


@pytest.mark.parametrize("loads", [(Load(100.0, 4000.0), Load(300.0, 40000.0)), None], ids=["told", "untold"])
def test_all_stages_work_on_what_the_first_one_counts(loads: tuple[Load, ...] | None) -> None:
    post = Post()
    first, second = (
        LoadShare(TERMS, MEAN, SharedLoads(post.of(rank), first=0, others=[1 - rank], rank=rank))
        for rank in (0, 1)
    )
    first.iteration_begins(Batch(2, loads=loads))
    second.iteration_begins(Batch(2))
    shape = Load(50.0, 0.0)
    for one in (first, second):
        wanted = 0.1 + 0.6 * 3.0 + 0.3 * 10.0 if loads else 0.1 + 0.6 * 0.5
        assert one.share(FORWARD, shape) == pytest.approx(wanted)
        backward = Instruction(1, Kind.BACKWARD, 1)
        assert one.share(backward, None) == pytest.approx(wanted), "what is done to a microbatch is alike"
    assert not any(post.boxes.values())


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
