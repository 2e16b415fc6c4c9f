"""A client and its guard in a thread, over a socket pair; the client alone, and packets."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hosts import eventually
from hypothesis import given, settings
from hypothesis import strategies as st
from lone_job import UUID, DeskGpu

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.gpu import ConflictKind, Sighting
from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)
from perseus_ds.guard import journal, protocol
from perseus_ds.guard import spawn as spawning
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.client import GuardedGpu, Heartbeat, RequestChannel, reacquire
from perseus_ds.guard.connection import ClientConnection, Server, serve
from perseus_ds.guard.open import NullGpu
from perseus_ds.guard.policy import Peer, Policy, Rule
from perseus_ds.guard.protocol import KIND, MAX_BYTES, MalformedError, decode, encode, encode_request, refusal
from perseus_ds.guard.spawn import open_guarded

LONG_S = 30.0
ALLOW_ALL, PEER = Policy((Rule(),)), Peer(0, 1000)


class Guard:
    """A guard that serves one client in a thread."""

    def __init__(self, gpu: DeskGpu, policy: Policy = ALLOW_ALL) -> None:
        self.gpu = gpu
        self.client, theirs = socket.socketpair(socket.AF_UNIX, KIND)
        self.stop = os.eventfd(0, os.EFD_CLOEXEC)
        self.connection = ClientConnection(theirs, PEER, Server(policy, open_gpu=lambda *_: gpu))
        self.restored: list[bool] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        self.restored.append(serve(self.connection, {self.stop: "told to"}))

    def ended(self) -> bool:
        """Return whether it came to its end, and put its GPU back."""
        self.thread.join(LONG_S)
        return self.restored == [True]


@pytest.fixture
def started() -> Iterator[Callable[..., Guard]]:
    guards: list[Guard] = []

    def start(gpu: DeskGpu | None = None, policy: Policy = ALLOW_ALL) -> Guard:
        guards.append(Guard(gpu or DeskGpu(), policy))
        return guards[-1]

    yield start
    for guard in guards:
        os.eventfd_write(guard.stop, 1)
        guard.thread.join(LONG_S)
        guard.client.close()
        os.close(guard.stop)


Start = Callable[..., Guard]


def test_what_is_asked_is_done_in_order_and_put_back_at_the_end(started: Start) -> None:
    guard = started()
    client = GuardedGpu(DeskGpu(), guard.client)
    for clock_mhz in (900, 900, 705):
        client.lock_clock(clock_mhz)
        client.sync(LONG_S)
    assert guard.gpu.calls == [900, 705]
    client.reset_clock()
    client.sync(LONG_S)
    client.close()
    assert guard.ended()
    assert guard.gpu.calls[:3] == [900, 705, None]
    assert guard.gpu.locked_mhz is None
    assert guard.gpu.closed == 1
    OwnershipLock(UUID, "the next").release()
    assert journal.read(UUID) is None


TAKE = {"do": "take", "uuid": UUID, "owner": "job", "backend": "nvml", "lease_s": 30}


@contextmanager
def connected(
    gpu: DeskGpu | NullGpu, policy: Policy = ALLOW_ALL, **more: Callable[..., bool]
) -> Iterator[tuple[ClientConnection, Callable[[object], dict[str, object]]]]:
    """A connection without a thread, and what it answers to a message at first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    ours.setblocking(False)
    connection = ClientConnection(theirs, PEER, Server(policy, open_gpu=lambda *_: gpu, **more))

    def answer(message: object) -> dict[str, object]:
        ours.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        assert connection.receive(), "the connection still stands"
        packets = []
        with suppress(BlockingIOError):
            while True:
                packets.append(ours.recv(MAX_BYTES))
        return json.loads(packets[0]) if packets else {}

    with ours:
        yield connection, answer
        assert connection.end() is None


def test_a_gpu_of_another_job_is_refused_by_the_device_controller() -> None:
    gpu, may_open = DeskGpu(), Mock(return_value=False)
    gpu.device_file = lambda: "/dev/nvidia3"
    with connected(gpu, Policy((Rule(own=True),)), may_open=may_open) as (_, answer):
        assert answer(TAKE)["kind"] == "DevicePermissionError"
    may_open.assert_called_once_with(PEER, "/dev/nvidia3")


@pytest.mark.parametrize("what", ["achieved", pytest.param("operator_settings", marks=pytest.mark.slow)])
def test_a_gpu_that_is_lost_while_it_is_taken_is_refused_and_its_lease_is_free_again(what: str) -> None:
    gpu = NullGpu(1)
    setattr(gpu, what, Mock(side_effect=DeviceLostError("gone")))
    with connected(gpu) as (_, answer):
        told = answer(TAKE | {"uuid": "null-1"})
        assert (told["is"], told["kind"]) == ("refused", "DeviceLostError")
        OwnershipLock("null-1", "the next").release()


def test_who_takes_no_gpu_has_half_a_minute() -> None:
    before_s = time.monotonic()
    with connected(NullGpu(1)) as (connection, _):
        after_s = time.monotonic()
        assert before_s + 30.0 <= connection.due_s() <= after_s + 30.0
        assert not connection.idle


WRONG = {
    "no JSON": b"{",
    "no verb": {"uuid": UUID},
    "another verb": {"do": "burn"},
    "a clock that it has not": {"do": "lock", "number": 1, "clock_mhz": 901},
    "a clock of text": {"do": "lock", "number": 1, "clock_mhz": "900"},
    "a clock of truth": {"do": "lock", "number": 1, "clock_mhz": True},
    "no number": {"do": "lock", "clock_mhz": 900},
    "a moment that no float holds": {"do": "lock", "number": 1, "clock_mhz": 900, "at_s": -(10**1000)},
    "a second GPU": TAKE | {"uuid": "GPU-2"},
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused_and_the_clock_left_alone(message: object) -> None:
    gpu = DeskGpu()
    with connected(gpu) as (connection, answer):
        assert not connection.has_taken
        assert answer(TAKE)["is"] == "taken"
        assert connection.has_taken
        assert answer(message)["is"] == "refused"
        connection.step()
        assert gpu.calls == []


KEYS = ("do", "uuid", "owner", "backend", "lease_s", "number", "clock_mhz", "at_s")
VALUES = (
    *("take", "may", "lock", "reset", "sync", "beat", UUID, "GPU-2", "nvml", "../../etc/passwd"),
    *(901, -1, 1e400, 1e308, None, True, [1], {"a": 1}, "\ud800", "é\0"),
)
messages = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
packets = messages | st.binary(min_size=1, max_size=300) | st.just(b"x" * (MAX_BYTES + 1))


@settings(max_examples=50)
@given(st.lists(packets, max_size=20))
def test_whatever_is_sent_no_clock_is_set(hostile: list[object]) -> None:
    gpu = DeskGpu()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERSEUS_GUARD_DIR", folder)
        with connected(gpu) as (connection, answer):
            assert answer(TAKE)["is"] == "taken"
            for packet in hostile:
                answer(packet)
                connection.step()
            assert answer({"do": "sync"})["is"] == "synced"
    assert set(gpu.calls) <= {None}


@pytest.mark.parametrize("verb", ["lock", "reset", "sync", "beat"])
def test_before_a_gpu_is_taken_nothing_is_done(verb: str) -> None:
    gpu = DeskGpu()
    with connected(gpu) as (_, answer):
        told = answer({"do": verb, "number": 1, "clock_mhz": 900})
        assert (told["is"], told["kind"]) == ("refused", "DeviceUnavailableError")
    assert gpu.calls == []


def test_the_client_beats_in_silence_and_gives_no_moments_to_another_time_namespace() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    theirs.send(b'{"is":"taken","floor_mhz":0}')
    client = GuardedGpu(DeskGpu(), ours, lease_s=0.3)
    theirs.settimeout(LONG_S)
    assert [json.loads(theirs.recv(MAX_BYTES))["do"] for _ in range(3)] == ["take", "beat", "beat"]
    client.close()
    theirs.close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    theirs.send(b'{"is":"taken","floor_mhz":0,"now_s":%.3f}' % 1e9)
    client = GuardedGpu(DeskGpu(), ours)
    assert not client.requests.dated
    client.close()
    theirs.close()


def test_a_refusal_ends_what_the_client_may_ask_and_one_of_the_driver_nothing(started: Start) -> None:
    guard = started()
    client = GuardedGpu(DeskGpu(), guard.client)
    client.requests.ask([DatedClock(time.monotonic(), 901)])
    with pytest.raises(DeviceUnsupportedError, match="901 MHz"):
        client.sync(LONG_S)
    with pytest.raises(DeviceUnsupportedError):
        client.lock_clock(900)
    client.close()
    with pytest.raises(DeviceUnavailableError, match="is closed"):
        client.lock_clock(900)
    client.close()
    guard.thread.join(LONG_S)  # until then it holds the GPU
    guard = started()
    guard.gpu.refuses_mhz = {1200}
    gpu = GuardedGpu(DeskGpu(), guard.client)
    gpu.lock_clock(1200)
    with pytest.raises(ValueRefusedError, match="1200 MHz"):
        gpu.sync()
    assert gpu.refused_mhz() == {1200}
    assert [one.kind for one in gpu.conflicts()] == [ConflictKind.CLOCK_REFUSED]
    gpu.lock_clock(900)
    gpu.sync()
    assert guard.gpu.calls == [1410, 900]
    assert gpu.given_up() is None
    gpu.close()


def test_a_guard_that_takes_over_is_asked_anew_whether_all_is_stored(started: Start) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    theirs.send(b'{"is":"taken","floor_mhz":0}')
    other = started()
    client = GuardedGpu(DeskGpu(), ours, connect=lambda: other.client)
    client.lock_clock(900)

    def end_unanswered() -> None:
        while json.loads(theirs.recv(MAX_BYTES))["do"] != "sync":
            pass
        theirs.close()

    first = threading.Thread(target=end_unanswered)
    first.start()
    client.sync(LONG_S)
    assert other.gpu.calls == [900]
    first.join()
    client.close()


def test_what_the_guard_saw_is_counted_by_kind(started: Start) -> None:
    guard = started(DeskGpu().without_persistence(), Policy((Rule(),), floor_mhz=800))
    gpu = GuardedGpu(DeskGpu(), guard.client)
    gpu.sync()
    kind = ConflictKind.PERSISTENCE_OFF
    assert gpu.conflicts() == (Sighting(kind, kind.text, 1),)
    gpu.close()


def test_a_guard_that_refuses_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    with theirs:
        theirs.send(encode(refusal(DeviceUnavailableError("held by another job"))))
        ended = Mock(pid=1, returncode=0)
        monkeypatch.setattr(spawning, "spawn", lambda _: (ours, ended))
        reader = DeskGpu()
        with pytest.raises(DeviceUnavailableError, match="another job"):
            open_guarded(reader)
    assert descriptors() == before
    assert reader.closed == 1


def test_what_is_due_later_is_made_by_the_guard_in_order(started: Start) -> None:
    guard = started()
    client = GuardedGpu(DeskGpu(), guard.client)
    assert client.requests.dated
    now_s = time.monotonic()
    first = (DatedClock(now_s, 900), DatedClock(now_s + 0.02, 1200), DatedClock(now_s + 0.04, 705))
    client.requests.ask(list(first))
    client.requests.ask([DatedClock(now_s + 0.03, 1410)])
    assert eventually(lambda: 1410 in guard.gpu.calls)
    assert guard.gpu.calls in ([900, 1200, 1410], [1200, 1410], [900, 1410], [1410])  # on a slow host
    client.close()
    assert guard.ended()


def test_a_floor_above_all_clocks_leaves_none_to_set(started: Start) -> None:
    gpu = GuardedGpu(DeskGpu(), started(policy=Policy((Rule(),), floor_mhz=2000)).client)
    able = gpu.capabilities()
    assert (able.clocks_mhz, able.can_lock) == ((), False)
    assert "2000 MHz" in str(able.why_not)
    gpu.close()


def test_a_driver_that_hangs_is_known_by_its_silence_and_its_late_clock(started: Start) -> None:
    hang = threading.Event()
    gpu = DeskGpu(lambda clock_mhz: None if clock_mhz != 1200 else (hang.wait(LONG_S), None)[1])
    guarded_gpu = GuardedGpu(DeskGpu(), started(gpu).client, lease_s=3.0)
    guarded_gpu.expect(call_s=0.0, latency_s=0.02)
    dated = guarded_gpu.dated_clocks()
    dated.ask([DatedClock(time.monotonic(), 900)])
    assert guarded_gpu.in_control()
    assert eventually(lambda: gpu.calls == [900])
    dated.ask([DatedClock(time.monotonic(), 1200)])
    assert eventually(lambda: not guarded_gpu.in_control())
    hang.set()
    assert eventually(lambda: guarded_gpu.in_control() and guarded_gpu.conflicts())
    assert [sighting.kind for sighting in guarded_gpu.conflicts()] == [ConflictKind.NOT_STORED]
    assert dated.counts.late in {1, 2}, "on a busy host the first one is late, too"
    assert dated.counts.longest_late_s > 3 * 0.02
    guarded_gpu.close()


# The client alone: what waits for room, when a guard hangs, how soon it meets its service again; packets.


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
    connect = Mock(side_effect=cycle([DeviceError("nobody is there"), OSError("no descriptor is left")]))
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
