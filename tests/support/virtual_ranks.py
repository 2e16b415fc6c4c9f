"""Ranks that are threads with a virtual clock each: their messages, and a session that knows when all ran."""

from __future__ import annotations

from queue import SimpleQueue

from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


class Post:
    """Messages between threads, first come first served for each pair and tag."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int, int], SimpleQueue[float]] = {}

    def box(self, source: int, to: int, tag: int) -> SimpleQueue[float]:
        """One and the same for both ends; a defaultdict may make two of them when both come at once."""
        return self._boxes.setdefault((source, to, tag), SimpleQueue())

    def of(self, rank: int) -> PostOfRank:
        return PostOfRank(self, rank)


class PostOfRank:
    """One rank's end of it."""

    def __init__(self, post: Post, rank: int) -> None:
        self.post, self.rank = post, rank

    def iteration_begins(self) -> None:
        pass

    def send(self, to: int, tag: int, moment_s: float) -> None:
        self.post.box(self.rank, to, tag).put(moment_s)

    def receive(self, source: int, tag: int) -> float:
        return self.post.box(source, self.rank, tag).get(timeout=20.0)

    def close(self) -> None:
        pass


class Wanting:
    """A session that wants everything, and knows when every instruction ran."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []
        self.begins_s: list[float] = []

    def iteration_begins(self, batch: Batch) -> bool:
        self.begins_s.append(self.clock.now_s())
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.starts_s.append(self.clock.now_s())

    def after(self, kind: Kind) -> None:
        self.ends_s.append(self.clock.now_s())

    def iteration_ends(self) -> None:
        pass

    def other_schedule_begins(self) -> None:
        pass

    def iteration_broke(self) -> None:
        pass
