"""Ranks meet again at one iteration, whenever each of them comes, and none waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import torch.distributed as dist

from perseus_ds.runtime.comm.reunion import Reunion, Store

PATIENCE_S = 60.0


def reunion(
    store: Store, rank: int, *, ranks: int = 3, losses: int = 1, reached: Callable[[str], bool] = bool
) -> Reunion[str]:
    def made(name: str) -> str | None:
        return name if reached(name) else None

    return Reunion(store, "job", made, rank=rank, ranks=ranks, losses=losses)


def iterations(them: Sequence[Reunion[str]], first: int) -> list[list[tuple[int, str]]]:
    """Train until every rank has met or missed it; at which iterations each of them met, in which group."""
    met: list[list[tuple[int, str]]] = [[] for _ in them]
    over = [False] * len(them)
    deadline, index = time.monotonic() + PATIENCE_S, first
    while not all(over) and time.monotonic() < deadline:
        for rank, one in enumerate(them):
            answer = one.at(index)
            if isinstance(answer, str):
                met[rank].append((index, answer))
            over[rank] = over[rank] or answer is not False
        index += 1
        time.sleep(0.01)
    return met


@pytest.mark.thorough
def test_all_meet_at_one_iteration() -> None:
    store = dist.HashStore()
    met = iterations([reunion(store, rank) for rank in range(3)], first=40)
    assert met[0] == met[1] == met[2]
    assert len(met[0]) == 1
    assert met[0][0][0] > 42


@pytest.mark.thorough
def test_nobody_meets_before_all_are_here() -> None:
    store = dist.HashStore()
    them = [reunion(store, rank) for rank in (0, 1)]
    for index in range(100):
        assert [one.at(index) for one in them] == [False, False]
        time.sleep(0.01)
    met = iterations([*them, reunion(store, 2)], first=100)
    assert met[0] == met[1] == met[2]
    assert len(met[0]) == 1


def test_who_reads_it_too_late_knows() -> None:
    store = dist.HashStore()
    store.set("job/reunion/1/1/here", "go")
    store.set("job/reunion/1/1/made", "5")
    late = reunion(store, 1)
    deadline = time.monotonic() + PATIENCE_S
    while (answer := late.at(9)) is False and time.monotonic() < deadline:
        time.sleep(0.01)
    assert answer is True


@pytest.mark.thorough
def test_where_one_does_not_reach_the_others_all_try_again() -> None:
    store, tried = dist.HashStore(), list[str]()

    def second_time(name: str) -> bool:
        tried.append(name)
        return len(tried) > 1

    met = iterations([reunion(store, 0), reunion(store, 1, reached=second_time), reunion(store, 2)], first=0)
    assert met[0] == met[1] == met[2]
    assert [group for _, group in met[0]] == ["job/reunion/1/2/group"]


class Cut:
    """A store that cannot be reached at first."""

    def __init__(self, store: dist.Store, failures: int) -> None:
        self.store, self.failures = store, failures

    def set(self, key: str, value: str, /) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("Broken pipe")
        self.store.set(key, value)

    def get(self, key: str, /) -> bytes:
        return self.store.get(key)

    def check(self, keys: list[str], /) -> bool:
        return self.store.check(keys)


@pytest.mark.thorough
def test_a_store_that_is_cut_off_is_asked_again() -> None:
    store = dist.HashStore()
    them = [reunion(store, 0, ranks=2), reunion(Cut(store, 2), 1, ranks=2)]
    met = iterations(them, first=0)
    assert met[0] == met[1]
    assert len(met[0]) == 1
