"""A socket without room: what waits is sent later, and what misses its moment meanwhile is counted."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.guard.client import ScheduledRequests, SendQueue
from perseus_ds.guard.protocol import KIND, MAX_BYTES

REQUESTS = 600


@pytest.fixture
def ends() -> Iterator[tuple[SendQueue, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    ours.setblocking(False)
    theirs.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    queue = SendQueue(ours)
    yield queue, theirs
    queue.close()
    theirs.close()


def arrived(queue: SendQueue, theirs: socket.socket) -> list[int]:
    """Read to the end, as a guard that was busy does; the listener flushes when there is room."""
    numbers: list[int] = []
    while True:
        try:
            packet = theirs.recv(MAX_BYTES)
        except BlockingIOError:
            if not queue.waits:
                return numbers
            queue.flush()
            continue
        numbers += [json.loads(line).get("number", -1) for line in packet.split(b"\n")]


def test_dated_requests_that_are_still_due_all_arrive_in_order(
    ends: tuple[SendQueue, socket.socket],
) -> None:
    queue, theirs = ends
    requests = ScheduledRequests(queue, lambda: None)
    start_s = time.monotonic() + 3600
    for number in range(REQUESTS):
        requests.ask([DatedClock(start_s + number, (900, 705)[number % 2])])
    assert queue.waits, "the socket is full"
    assert arrived(queue, theirs) == list(range(1, REQUESTS + 1))
    assert requests.counts.overtaken == 0


def test_what_misses_its_moment_is_counted_and_the_present_clock_arrives(
    ends: tuple[SendQueue, socket.socket],
) -> None:
    queue, theirs = ends
    requests = ScheduledRequests(queue, lambda: None)
    start_s = time.monotonic() - 3600
    for number in range(REQUESTS):
        requests.ask([DatedClock(start_s + number, (900, 705)[number % 2])])
    numbers = arrived(queue, theirs)
    assert numbers[-1] == REQUESTS
    assert len(numbers) + requests.counts.overtaken == REQUESTS


def test_a_newer_request_takes_the_turn_of_those_that_wait_and_are_due_later(
    ends: tuple[SendQueue, socket.socket],
) -> None:
    queue, theirs = ends
    start_s = time.monotonic() + 3600
    for number in range(REQUESTS):
        queue.request((900, start_s + number))
    newest = queue.request((None, None), behind={"do": "report"})
    assert arrived(queue, theirs)[-2:] == [newest, -1]
    assert queue.overtaken == 0


def test_another_guard_is_asked_for_what_is_still_due(ends: tuple[SendQueue, socket.socket]) -> None:
    queue, theirs = ends
    start_s = time.monotonic()
    queue.request((900, start_s - 2), (705, start_s - 1), (900, start_s + 3600), (705, start_s + 7200))
    queue.detach()
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    ours.setblocking(False)
    theirs.setblocking(False)
    queue.attach(ours)
    queue.flush()
    assert arrived(queue, theirs) == [2, 3, 4]
    assert queue.overtaken == 1, "the first was overtaken before it was sent at all"
    theirs.close()


def test_a_flush_with_nothing_to_send_sends_nothing(ends: tuple[SendQueue, socket.socket]) -> None:
    """An empty packet would be the end of the connection."""
    queue, theirs = ends
    queue.flush()
    with pytest.raises(BlockingIOError):
        theirs.recv(MAX_BYTES)
