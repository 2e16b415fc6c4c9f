"""A rank that is late is waited for; an exchange for which all ranks wait in vain is not."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from perseus_ds.runtime.comm.standstill import Standstill

PATIENCE_S = 60.0


class Exchange:
    """What is under way, until it comes."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def wait(self, within: timedelta) -> bool:
        if not self.over.wait(within.total_seconds()):
            raise RuntimeError("Operation timed out!")
        return True

    def is_completed(self) -> bool:
        return self.over.is_set()


class Waiting(threading.Thread):
    """A rank that waits for an exchange, and how that ended."""

    def __init__(self, store: dist.Store, exchange: Exchange, ranks: int = 2, *, at: int = 7) -> None:
        super().__init__(daemon=True)
        self.ended = ""
        self._store, self._exchange, self._ranks, self._at = store, exchange, ranks, at
        self.start()

    def run(self) -> None:
        standstill = Standstill(lambda: self._store, ranks=self._ranks)
        try:
            standstill.wait(
                self._exchange,  # type: ignore[arg-type]
                "waits",
                self._at,
                lost="lost",
                patience_s=PATIENCE_S,
            )
            self.ended = "it came"
        except RuntimeError as error:
            self.ended = str(error)


def test_ranks_that_all_wait_wait_no_more() -> None:
    store = dist.HashStore()
    waiting = [Waiting(store, Exchange()) for _ in range(2)]
    for one in waiting:
        one.join(PATIENCE_S / 2)
    assert [one.ended for one in waiting] == ["all ranks wait, and nothing comes through"] * 2


@pytest.mark.thorough
def test_on_a_busy_host_ranks_look_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What carries their numbers waits for a processor: nobody has broken the link."""
    processors = len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0 * processors, 0.0, 0.0))
    store = dist.HashStore()
    waiting = [Waiting(store, Exchange()) for _ in range(2)]
    for one in waiting:
        one.join(PATIENCE_S / 2)
    assert [one.ended for one in waiting] == ["all ranks wait, and nothing comes through"] * 2
    assert store.check(["waits/7/11"])


def test_a_rank_that_has_its_numbers_already_and_waits_for_the_next_counts() -> None:
    """A link that breaks within an exchange: some have all of it, others do not."""
    store = dist.HashStore()
    behind, ahead = Waiting(store, Exchange()), Waiting(store, Exchange(), at=8)
    behind.join(PATIENCE_S / 2)
    assert behind.ended == "all ranks wait, and nothing comes through"
    store.set("lost", "")  # as a rank does that goes on alone
    ahead.join(PATIENCE_S / 2)
    assert ahead.ended == behind.ended


@pytest.mark.thorough
def test_a_rank_that_is_late_is_waited_for() -> None:
    store, exchange = dist.HashStore(), Exchange()
    one = Waiting(store, exchange)
    while not store.check(["waits/7/0"]):  # it has waited long enough to ask then
        time.sleep(0.01)
    one.join(1.0)
    assert one.is_alive()
    exchange.over.set()
    one.join(PATIENCE_S / 2)
    assert one.ended == "it came"


@pytest.mark.thorough
def test_a_rank_that_got_its_numbers_late_does_not_count_as_one_that_waits() -> None:
    """On a busy host each may wait long, one after the other: that is no broken link."""
    store, exchange = dist.HashStore(), Exchange()
    first = Waiting(store, exchange)
    while not store.check(["waits/7/0"]):
        time.sleep(0.01)
    exchange.over.set()
    first.join(PATIENCE_S / 2)
    second = Waiting(store, Exchange())
    second.join(2.0)
    assert (first.ended, second.ended) == ("it came", "")


def test_a_rank_that_lost_the_others_is_not_waited_for() -> None:
    store = dist.HashStore()
    one = Waiting(store, Exchange(), ranks=3)
    store.set("lost", "")
    one.join(PATIENCE_S / 2)
    assert one.ended == "all ranks wait, and nothing comes through"


@pytest.mark.thorough
def test_without_a_store_patience_bounds_the_wait() -> None:
    def gone() -> dist.Store:
        raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="nothing came within 1 s"):
        Standstill(gone, ranks=2).wait(
            Exchange(),  # type: ignore[arg-type]
            "waits",
            7,
            lost="lost",
            patience_s=1.0,
        )
