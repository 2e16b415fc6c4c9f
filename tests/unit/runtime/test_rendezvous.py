"""Before the first collective everyone signs in, at an address that others reach; nobody waits for ever."""

import socket
import threading
from collections.abc import Mapping

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

from perseus_ds.errors import EngineError
from perseus_ds.runtime.reach import Reach, reach_of, route_to, towards
from perseus_ds.runtime.rendezvous import RendezvousResult, SignIn, flags, rendezvous

Answers = dict[int, RendezvousResult]
Settings = Mapping[int, Mapping[str, str]]


class Ranks:
    """Calls the roll in one thread per rank, over one store in memory; ranks come one after another."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.store, self._patch = dist.HashStore(), patch
        self._here = threading.local()
        self._came = threading.Semaphore(0)
        patch.setattr(distributed_c10d, "_get_default_store", lambda: self.store)
        patch.setattr(dist, "get_rank", self._get_rank)

    def __call__(
        self, settings: Settings, *, size: int, refusals: Mapping[int, str] = {}, patience_s: float = 10.0
    ) -> Answers:
        self._patch.setattr(dist, "get_world_size", lambda: size)
        answers: Answers = {}

        def rank(number: int) -> None:
            self._here.rank = number
            refusal = EngineError(refusals[number], hint="mend it") if number in refusals else None
            met = rendezvous(settings[number], refusal=refusal, patience_s=patience_s, grace_s=0.05)
            answers[number] = met

        threads = [threading.Thread(target=rank, args=(number,)) for number in settings]
        for thread in threads:
            thread.start()
            assert self._came.acquire(timeout=10.0)
        for thread in threads:
            thread.join()
        return answers

    def _get_rank(self) -> int:
        self._came.release()
        return self._here.rank


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_everyone_gets_rank_0s_settings(ranks: Ranks) -> None:
    settings = {0: {"PERSEUS_MODE": "observe"}, 1: {}, 2: {"PERSEUS_MODE": "off"}}
    assert met(ranks(settings, size=3)) == [{"PERSEUS_MODE": "observe"}] * 3


@pytest.mark.parametrize(
    ("here", "size", "absent"), [((0, 2), 4, "1, 3"), ((1, 2), 3, "0")], ids=["rank 0 is here", "it is not"]
)
def test_absent_ranks_are_named_by_one(ranks: Ranks, here: tuple[int, ...], size: int, absent: str) -> None:
    answers = ranks({rank: {} for rank in here}, size=size, patience_s=0.05).values()
    assert all(absent in str(one.refusal) for one in answers)
    assert {one.logging_rank for one in answers if "sign in" in str(one.refusal)} == {here[0]}


REFUSALS = {
    "rank 1: no clocks (mend it)": {1: "no clocks"},
    "rank 0, 2: no clocks (mend it)": {0: "no clocks", 1: "too old", 2: "no clocks"},
    "no clocks (mend it)": {0: "no clocks", 1: "no clocks", 2: "no clocks"},
}


@pytest.mark.parametrize("line", REFUSALS)
def test_a_refusal_is_everybodys_and_names_its_ranks(ranks: Ranks, line: str) -> None:
    answers = ranks({0: {"a": "b"}, 1: {}, 2: {}}, size=3, refusals=REFUSALS[line])
    assert [str(one.refusal) for one in answers.values()] == [line] * 3
    assert [one.settings for one in answers.values()] == [{"a": "b"}] * 3


def test_a_long_list_of_ranks_is_cut_short(ranks: Ranks) -> None:
    everyone = {rank: {} for rank in range(12)}
    answers = ranks(everyone, size=12, refusals=dict.fromkeys(range(1, 12), "no clocks"))
    told = str(answers[0].refusal)
    assert "3 more" in told
    assert ("8 " in told, "9" in told) == (True, False)


def test_who_comes_too_late_hears_that_the_others_gave_up(ranks: Ranks) -> None:
    ranks({0: {}}, size=2, patience_s=0.05)
    assert "gave up" in str(ranks({1: {}}, size=2)[1].refusal)


def met(answers: Answers) -> list[Mapping[str, object]]:
    assert len({(one.name, str(one.refusal)) for one in answers.values()}) == 1
    return [one.settings for one in answers.values()]


def test_a_rank_that_has_waited_for_an_engine_of_its_own_meets_the_others(ranks: Ranks) -> None:
    everyone: Settings = {0: {"a": "b"}, 1: {}, 2: {}}
    for waited in ((1, 0, 1), (2,)):
        for alone in waited:
            ranks({alone: {}}, size=3, patience_s=0.05)
        assert met(ranks(everyone, size=3)) == [{"a": "b"}] * 3


@pytest.mark.thorough
def test_names_that_a_former_life_has_left_mislead_nobody(ranks: Ranks) -> None:
    """It ended while it met: rank 2 had not come yet, and is the first to come now."""
    for rank in (0, 1):
        SignIn(ranks.store, rank, 3).sign({"a": "old"}, None)
    late = {2: {}, 1: {}, 0: {"a": "new"}}
    assert met(ranks(late, size=3)) == [{"a": "new"}] * 3


def test_flags_are_what_the_environment_sets_of_ours() -> None:
    environment = {"PERSEUS_MODE": "off", "PERSEUS_DEVICE": "", "PERSEUS_SECRET": "x", "HOME": "/"}
    assert flags(environment) == {"PERSEUS_MODE": "off"}


# The address of a host that others reach: by a variable, by name resolution, by a route.


def test_what_gloo_can_read_is_left_to_it() -> None:
    assert reach_of("127.0.0.1", {"GLOO_SOCKET_IFNAME": "lo"}) == Reach(interface="lo")


@pytest.mark.parametrize("wanted", ["no-such-card", "^docker", "=lo", "lo,no-such-card"])
def test_a_variable_that_names_nothing_is_named_with_what_there_is(wanted: str) -> None:
    reach = reach_of("127.0.0.1", {"GLOO_SOCKET_IFNAME": wanted})
    assert reach.address == "127.0.0.1"
    assert f"GLOO_SOCKET_IFNAME={wanted}" in reach.why
    assert "lo" in reach.why


def test_a_name_that_does_not_resolve_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    reach = reach_of("127.0.0.1", {})
    assert reach == Reach(address="127.0.0.1")
    assert reach.is_local


def test_where_nothing_leads_gloo_is_left_to_choose() -> None:
    assert route_to("no-such-host.invalid") == ""
    assert towards("") == Reach()
    assert not towards("").is_local
