"""The client: what waits for room, when a guard hangs, how soon it meets its service again; packets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.errors import DeviceError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard import protocol
from perseus_ds.guard.client import GuardedGpu, Heartbeat, RequestChannel, reacquire
from perseus_ds.guard.open import NullGpu
from perseus_ds.guard.protocol import KIND, MAX_BYTES, MalformedError, decode, encode, encode_request, refusal


def beat(heartbeat: Heartbeat, clock: SimpleNamespace) -> tuple[bool, bool]:
    clock.time_s += heartbeat.left_s()
    heartbeat.sent()
    return heartbeat.in_doubt, heartbeat.hangs


def test_a_silent_guard_is_doubted_soon_and_hangs_after_a_lease() -> None:
    clock, seen = SimpleNamespace(time_s=100.0), {}
    heartbeat = Heartbeat(30.0, now_s=lambda: clock.time_s)
    while not heartbeat.hangs:
        seen.setdefault(beat(heartbeat, clock), clock.time_s - 101.0)
    assert seen == {(False, False): 0.0, (True, False): 2.0, (True, True): 30.0}
    heartbeat.on_answer()
    assert (heartbeat.in_doubt, heartbeat.hangs) == (False, False)
    beat(heartbeat, clock)
    clock.time_s += 3600.0  # the job was suspended: that is no doubt
    assert beat(heartbeat, clock) == (False, False)


# A service that was gone: how soon a job that looks for it meets it again.


class Passing(threading.Event):
    """Waits that take no time but their own count; a job ends after ``ends_s``."""

    def __init__(self, ends_s: float = 1e9) -> None:
        super().__init__()
        self.now_s, self._ends_s = 0.0, ends_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += timeout
        return self.now_s > self._ends_s


@pytest.mark.parametrize("gone_s", [0.0, 0.05, 0.31, 0.93, 1.45, 4.0, 60.0])
def test_a_service_that_is_back_is_met_soon(gone_s: float) -> None:
    over, tries = Passing(), 0

    class BackError(Exception):
        """It was there."""

    def connect() -> socket.socket:
        nonlocal tries
        tries += 1
        if over.now_s >= gone_s:
            raise BackError
        raise DeviceError("nobody is there")

    with pytest.raises(BackError):
        reacquire(connect, b"", over=over)
    assert over.now_s - gone_s <= 0.1 + 1e-9
    assert tries <= 20 + 10 * gone_s


def test_a_job_that_ends_asks_no_more() -> None:
    connect = Mock(side_effect=DeviceError("nobody is there"))
    assert reacquire(connect, b"", over=Passing(ends_s=3.0)) is None


# A socket without room: what waits is sent later, and what misses its moment meanwhile is counted.

REQUESTS = 600
Ends = tuple[RequestChannel, socket.socket]


def pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair(socket.AF_UNIX, KIND)
    for end in ends:
        end.setblocking(False)
    return ends


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    queue = RequestChannel(ours)
    yield queue, theirs
    queue.end()
    theirs.close()


def ask(queue: RequestChannel, after_s: float) -> None:
    start_s = time.monotonic() + after_s
    for number in range(REQUESTS):
        queue.ask([DatedClock(start_s + number, (900, 705)[number % 2])])


def arrived(queue: RequestChannel, theirs: socket.socket) -> list[int]:
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


def test_requests_arrive_in_order_unless_a_newer_one_takes_the_turn_of_those_due_later(ends: Ends) -> None:
    queue, theirs = ends
    ask(queue, 3600)
    assert queue.waits, "the socket is full"
    assert arrived(queue, theirs) == list(range(1, REQUESTS + 1))
    ask(queue, 3600)
    queue.close()
    assert arrived(queue, theirs)[-1] == 2 * REQUESTS + 1
    assert queue.counts.overtaken == 0


def test_what_misses_its_moment_is_counted_and_the_present_clock_arrives(ends: Ends) -> None:
    queue, theirs = ends
    ask(queue, -3600)
    numbers = arrived(queue, theirs)
    assert numbers[-1] == REQUESTS
    assert len(numbers) + queue.counts.overtaken == REQUESTS


def test_another_guard_is_asked_for_what_is_still_due(ends: Ends) -> None:
    queue, _ = ends
    start_s = time.monotonic()
    moments_s = (start_s - 2, start_s - 1, start_s + 3600, start_s + 7200)
    queue.ask([DatedClock(due_s, (900, 705)[place % 2]) for place, due_s in enumerate(moments_s)])
    queue.detach()
    ours, theirs = pair()
    with theirs:
        queue.attach(ours)
        queue.flush()
        assert arrived(queue, theirs) == [2, 3, 4]
    assert queue.counts.overtaken == 1, "the first was overtaken before it was sent at all"


def test_a_flush_with_nothing_to_send_sends_nothing(ends: Ends) -> None:
    """An empty packet would be the end of the connection."""
    queue, theirs = ends
    queue.flush()
    with pytest.raises(BlockingIOError):
        theirs.recv(MAX_BYTES)


# A guard that is gone.


def test_a_guards_last_words_are_heard_though_it_left_ours_unread() -> None:
    ours, guard = socket.socketpair(socket.AF_UNIX, KIND)
    guard.send(b'{"is":"taken","floor_mhz":0}')
    client = GuardedGpu(NullGpu(), ours)
    # what stays unread, with the request to take: the kernel resets the connection
    client.requests.ask([DatedClock(0.0, 900)])
    guard.send(encode(refusal(DeviceUnavailableError("the job's launcher is gone"))))
    guard.close()
    client._listener.join(20)
    assert not client._listener.is_alive()
    assert "launcher" in str(client.given_up())


# Packets: there and back, and whatever bytes come.

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
def test_a_message_comes_back(message: dict[str, str | int | float | bool | None]) -> None:
    assert decode(encode(message)) == message


def test_a_request_is_a_message() -> None:
    assert decode(encode_request(3, 900)) == {"do": "lock", "number": 3, "clock_mhz": 900}
    assert decode(encode_request(4, None)) == {"do": "reset", "number": 4}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(packet: bytes) -> None:
    try:
        assert isinstance(decode(packet), dict)
    except MalformedError as error:
        assert str(error)  # noqa: PT017 - either answer is right


@pytest.mark.parametrize(
    "packet", [b"[1]", b'{"a":[1]}', b"[" * MAX_BYTES, b'{"a":' * 700, b"{" * (MAX_BYTES + 1)]
)
def test_what_is_not_plain_is_refused(packet: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(packet)


def test_an_error_crosses_whole_and_one_of_an_unknown_kind_is_a_plain_device_error() -> None:
    error = protocol.error_in(refusal(DevicePermissionError("no right", hint="be root")))
    assert type(error) is DevicePermissionError
    assert "no right" in str(error)
    assert "be root" in str(error)
    for kind in ("SystemExit", "PerseusError", "annotations", None):
        assert type(protocol.error_in({"kind": kind, "message": "m"})) is DeviceError
