"""Requests reach the device in stream order, the last one wins, and the clock is given back."""

from collections.abc import Iterator
from typing import cast

import pytest
import torch
from runtime_fakes import HandEvent, NotingGpu

from perseus_ds.errors import DeviceLostError
from perseus_ds.runtime.control.clock_requests import ClockRequests, Request

FAR_S = 1e6


@pytest.fixture
def gpu() -> NotingGpu:
    return NotingGpu()


@pytest.fixture
def requests(gpu: NotingGpu) -> Iterator[ClockRequests]:
    requests = ClockRequests(gpu)
    yield requests
    requests.close()
    assert not requests._thread.is_alive()


def at(clock_mhz: int | None, event: HandEvent | None = None, *, delay_s: float = 0.0) -> Request:
    return Request(clock_mhz, 0.0, cast("torch.cuda.Event | None", event), delay_s)


def holding(requests: ClockRequests) -> HandEvent:
    """Keep the thread waiting at an event, so that what is put now is found together."""
    event = HandEvent()
    requests.put(at(1, event))
    assert event.awaited.wait(10.0)
    return event


def test_requests_arrive_in_order(gpu: NotingGpu, requests: ClockRequests) -> None:
    for clock in (900, 800, 1000):
        requests.put(at(clock))
        gpu.wait_for(1)
    assert gpu.asked == [900, 800, 1000]
    assert requests.counts.changes == 3


def test_asking_again_for_the_same_clock_costs_the_device_nothing(
    gpu: NotingGpu, requests: ClockRequests
) -> None:
    for clock in (900, 900, 900, 800):
        requests.put(at(clock))
    gpu.wait_for(1)
    requests.close()
    assert gpu.asked.count(900) <= 1
    assert gpu.asked[-2:] == [800, None]


def test_the_last_of_a_backlog_wins(gpu: NotingGpu, requests: ClockRequests) -> None:
    gate = holding(requests)
    for clock in (900, 800, 700):
        requests.put(at(clock))
    gate.reach()
    assert gpu.wait_for(1) == [700]


def test_the_host_running_ahead_skips_nothing(gpu: NotingGpu, requests: ClockRequests) -> None:
    """All of an iteration is issued before the device begins: every clock still comes at its event."""
    events = [HandEvent() for _ in range(4)]
    for clock, event in zip((900, 800, 700, 600), events, strict=True):
        requests.put(at(clock, event))
    for count, event in enumerate(events, start=1):
        assert event.awaited.wait(10.0)
        assert len(gpu.asked) == count - 1
        event.reach()
        gpu.wait_for(1)
    assert gpu.asked == [900, 800, 700, 600]


def test_a_delayed_request_waits_for_its_time(gpu: NotingGpu, requests: ClockRequests) -> None:
    requests.put(at(900))
    requests.put(at(1000, delay_s=0.01))
    assert gpu.wait_for(1) == [900]
    gpu.time_s = 0.01
    assert gpu.wait_for(1) == [900, 1000]


def test_a_delayed_request_counts_from_its_event(gpu: NotingGpu, requests: ClockRequests) -> None:
    event = HandEvent()
    requests.put(at(1000, event, delay_s=5.0))
    assert event.awaited.wait(10.0)
    gpu.time_s = 100.0  # long past issued_s + delay_s
    event.reach()
    requests.put(at(800))
    assert gpu.wait_for(1) == [800]


def test_a_delayed_request_gives_way_to_what_comes_after_it(gpu: NotingGpu, requests: ClockRequests) -> None:
    requests.put(at(1000, delay_s=FAR_S))
    requests.put(at(800))
    assert gpu.wait_for(1) == [800]


def test_a_delayed_request_is_not_overtaken_by_what_the_device_has_not_reached(
    gpu: NotingGpu, requests: ClockRequests
) -> None:
    later = HandEvent()
    requests.put(at(1000, delay_s=0.01))
    requests.put(at(800, later))
    gpu.time_s = 0.01
    assert gpu.wait_for(1) == [1000]
    later.reach()
    assert gpu.wait_for(1) == [1000, 800]


def test_a_later_delayed_request_replaces_an_earlier_one(gpu: NotingGpu, requests: ClockRequests) -> None:
    requests.put(at(1000, delay_s=FAR_S))
    requests.put(at(900, delay_s=0.01))
    gpu.time_s = 0.01
    assert gpu.wait_for(1) == [900]


def test_a_delayed_request_lets_an_earlier_one_pass(gpu: NotingGpu, requests: ClockRequests) -> None:
    gate = holding(requests)
    requests.put(at(800))
    requests.put(at(1000, delay_s=0.01))
    gate.reach()
    assert gpu.wait_for(1) == [800]
    gpu.time_s = 0.01
    assert gpu.wait_for(1) == [800, 1000]


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("the guard's pipe broke")])
def test_the_first_error_is_kept_and_nothing_is_asked_after_it(
    gpu: NotingGpu, requests: ClockRequests, error: Exception
) -> None:
    gpu.fails = error
    requests.put(at(900))
    assert gpu.failed.wait(10.0)
    gpu.fails = None
    requests.put(at(800))
    requests.close()
    assert str(error) in str(requests.error)
    assert gpu.asked == []


def test_closing_restores_the_clock_and_drops_what_waits(gpu: NotingGpu) -> None:
    requests = ClockRequests(gpu)
    requests.put(at(900))
    gpu.wait_for(1)
    requests.put(at(1000, delay_s=FAR_S))
    requests.close()
    assert gpu.asked == [900, None]
    assert not requests._thread.is_alive()


def test_closing_resets_nothing_that_was_never_set(gpu: NotingGpu) -> None:
    requests = ClockRequests(gpu)
    requests.put(at(None))
    requests.close()
    assert gpu.asked == []


def test_closing_does_not_wait_for_a_device_that_hangs(gpu: NotingGpu) -> None:
    requests = ClockRequests(gpu, patience_s=0.01)
    never = holding(requests)
    requests.put(at(900))
    requests.close()
    assert requests._thread.is_alive()
    never.reach()
    requests._thread.join(10.0)
    assert gpu.asked == []


def test_closing_after_the_device_was_lost_still_ends_the_thread(gpu: NotingGpu) -> None:
    requests = ClockRequests(gpu)
    requests.put(at(900))
    gpu.wait_for(1)
    gpu.fails = DeviceLostError("gone")
    requests.close()
    assert not requests._thread.is_alive()
    assert isinstance(requests.error, DeviceLostError)
