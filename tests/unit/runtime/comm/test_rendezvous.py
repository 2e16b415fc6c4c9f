"""Before the first collective everyone signs in; who is missing is named, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

from perseus_ds.errors import EngineError
from perseus_ds.runtime.comm.rendezvous import flags, rendezvous

Answers = dict[int, Mapping[str, str] | EngineError]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """Call the roll in one thread per rank, over one store in memory; ranks come one after another."""
    store = dist.HashStore()
    here = threading.local()
    came = threading.Semaphore(0)

    def get_rank() -> int:
        came.release()
        rank: int = here.rank
        return rank

    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(dist, "get_rank", get_rank)

    def call(settings: Mapping[int, Mapping[str, str]], *, size: int, patience_s: float = 10.0) -> Answers:
        monkeypatch.setattr(dist, "get_world_size", lambda: size)
        answers: Answers = {}

        def rank(number: int) -> None:
            here.rank = number
            try:
                answers[number] = rendezvous(settings[number], patience_s=patience_s, number=1)
            except EngineError as error:
                answers[number] = error

        threads = [threading.Thread(target=rank, args=(number,)) for number in settings]
        for thread in threads:
            thread.start()
            assert came.acquire(timeout=10.0)
        for thread in threads:
            thread.join()
        return answers

    return call


def test_everyone_gets_rank_0s_settings(ranks: Callable[..., Answers]) -> None:
    settings = {0: {"PERSEUS_MODE": "observe"}, 1: {}, 2: {"PERSEUS_MODE": "off"}}
    assert list(ranks(settings, size=3).values()) == [{"PERSEUS_MODE": "observe"}] * 3


def test_who_is_absent_is_named(ranks: Callable[..., Answers]) -> None:
    answers = ranks({0: {}, 2: {}}, size=4, patience_s=0.05)
    assert "rank 1, 3 did not sign in" in str(answers[0])
    assert all(isinstance(answers[rank], EngineError) for rank in (0, 2))


def test_who_comes_too_late_hears_that_the_others_gave_up(ranks: Callable[..., Answers]) -> None:
    ranks({0: {}}, size=2, patience_s=0.05)
    assert str(ranks({1: {}}, size=2)[1]) == (
        "another rank gave up waiting for this one (the job trains on without us)"
    )


def test_flags_are_what_the_environment_sets_of_ours() -> None:
    environment = {"PERSEUS_MODE": "off", "PERSEUS_DEVICE": "", "PERSEUS_SECRET": "x", "HOME": "/"}
    assert flags(environment) == {"PERSEUS_MODE": "off"}
