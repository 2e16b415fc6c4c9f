"""What is said of clock requests that missed their moment."""

from typing import cast

import torch
from runtime_fakes import HandEvent, NotingGpu

from perseus_ds.runtime.control.clock_requests import ClockRequests, Request
from perseus_ds.runtime.measure.request_counts import LATE_S, RequestCounts


def test_a_change_in_time_is_not_late() -> None:
    counts = RequestCounts()
    for _ in range(100):
        counts.made(late_s=0.5 * LATE_S)
    assert (counts.changes, counts.late, counts.told) == (100, 0, "")


def test_one_in_a_hundred_is_not_told_and_more_are() -> None:
    assert not RequestCounts(changes=100, late=1).told
    counts = RequestCounts(changes=90, late=2, overtaken=10, longest_late_s=0.031)
    assert counts.missed == 0.12
    assert "12.0 % of 100 changes" in counts.told
    assert "at most 31 ms" in counts.told


def test_a_request_that_waits_behind_a_slow_call_is_late() -> None:
    """The first call holds the thread: the second is due at once and comes when it is over."""
    gpu = NotingGpu()
    requests = ClockRequests(gpu)
    try:
        event = HandEvent()
        requests.put(Request(900, gpu.now_s() - 10.0 * LATE_S, cast("torch.cuda.Event | None", None)))
        gpu.wait_for(1)
        requests.put(Request(800, gpu.now_s(), cast("torch.cuda.Event | None", event)))
        event.reach()
        gpu.wait_for(1)
    finally:
        requests.close()
    assert requests.counts.late == 1
    assert requests.counts.changes >= 2


def test_rest_that_gives_way_to_the_next_iteration_is_no_miss() -> None:
    gpu = NotingGpu()
    requests = ClockRequests(gpu)
    try:
        for clock_mhz in (900, 800, 700):
            requests.put(Request(None, gpu.now_s(), delay_s=1e6))
            requests.put(Request(clock_mhz, gpu.now_s()))
            gpu.wait_for(1)
    finally:
        requests.close()
    assert requests.counts.overtaken == 0
