"""The trainer's end of a guard: a GPU that is read here and whose clock is a message to the guard.

`GuardedGpu` is what the runtime uses. Its `GuardClient` sends requests that never block (`SendQueue`), on
whatever thread asks; a thread of its own reads what the guard reports and sends beats. `ScheduledRequests`
hands requests over ahead of time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from perseus_ds.device.clock_agenda import DatedClock, DatedClocks, RequestCounts, overdue_s
from perseus_ds.device.gpu import Capabilities, ConflictKind, Gpu, ReadThroughGpu, Sighting
from perseus_ds.errors import (
    DeviceError,
    DevicePermissionError,
    DeviceUnavailableError,
    ValueRefusedError,
)
from perseus_ds.guard.claim import is_transient, pauses_s
from perseus_ds.guard.protocol import (
    ANSWER_S,
    KIND,
    MAX_BYTES,
    MalformedError,
    Message,
    ask,
    decode,
    encode,
    encode_request,
    refused,
)

if TYPE_CHECKING:
    from perseus_ds.guard.spawn import SpawnedGuard

DEFAULT_SOCKET = Path("/run/perseus-guardd/guardd.sock")

_LEASE_S = 30.0
_BEATS_PER_LEASE = 3
_LONGEST_BEAT_S = 1.0
_DOUBTED = 3  # beats without an answer, so that two had their time
_MAX_UNKNOWN = 4096
_REPORT: Message = {"do": "report"}


@dataclass(frozen=True, slots=True)
class _Request:
    """A request; ``at_s`` is what the guard is sent, ``due_s`` the same moment, or when it was made."""

    number: int
    clock_mhz: int | None
    at_s: float | None
    due_s: float


class SendQueue:
    """Sends clock requests over a non-blocking socket.

    With the socket full, requests wait by the guard's own rule (`ClockAgenda`): one that is due later than a
    newer one gives way, and of those that are due by now the newest is sent. Those before it have missed
    their moment and are counted as ``overtaken``. `fileno` becomes readable, so that a listener calls `flush`
    when there is room. Without a connection (`detach`) requests wait for the next one (`attach`), which is
    asked again for those made last.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.overtaken = 0
        self._socket: socket.socket | None = sock
        self._lock = threading.Lock()
        self._number = 0
        self._last: list[_Request] = []
        self._waiting: deque[_Request] = deque()
        self._behind: Message | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def request(self, *clocks: tuple[int | None, float | None], behind: Message | None = None) -> int:
        """Send requests, or have them wait; returns the last one's number at once either way.

        A clock of None gives it back, a time of None "now"; ``behind`` is a message that follows them.
        """
        with self._lock:
            now_s, waited = time.monotonic(), self.waits
            self._last = []
            for clock_mhz, at_s in clocks:
                self._number += 1
                due_s = now_s if at_s is None else at_s
                self._last.append(_Request(self._number, clock_mhz, at_s, due_s))
                self._put(self._last[-1])
            self._behind = behind or self._behind
            if waited:
                self._drop_missed(now_s)
            else:
                self._send_waiting(now_s)
                if self.waits and self._wake >= 0:
                    os.eventfd_write(self._wake, 1)
            return self._number

    def send(self, message: Message) -> bool:
        """Send a message behind all requests, if there is room for it now."""
        with self._lock:
            return not self.waits and self._send(encode(message))

    @property
    def waits(self) -> bool:
        """Return whether a request waits for room."""
        return bool(self._waiting) or self._behind is not None

    def fileno(self) -> int:
        """Return what becomes readable when a request begins to wait."""
        return self._wake

    def flush(self) -> None:
        """Send what waits, if there is room."""
        with self._lock:
            if self._wake >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._send_waiting(time.monotonic())

    def detach(self) -> None:
        """Close the socket of a guard that is gone; what was asked last, and is meanwhile, waits."""
        with self._lock:
            self._hang_up()
            now_s, waiting, last = time.monotonic(), self._waiting, self._last
            self._waiting, self._behind = deque(), None
            older = (one for one in waiting if not last or one.number < last[0].number)
            due = [one for one in last if one.due_s <= now_s]  # the lost guard made all but the newest
            for one in (*older, *due[-1:], *(one for one in last if one.due_s > now_s)):
                self._put(one)

    def attach(self, sock: socket.socket, first: Message | None = None) -> None:
        """Go on over another socket, with what was asked last behind a ``first`` message."""
        with self._lock:
            self._socket = sock
            if first is not None:
                self._send(encode(first))
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the socket too."""
        with self._lock:
            self._hang_up()
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _put(self, request: _Request) -> None:
        while self._waiting and self._waiting[-1].due_s > request.due_s:
            self._waiting.pop()
        self._waiting.append(request)

    def _drop_missed(self, now_s: float) -> None:
        """Drop requests that a newer one, due by now, supersedes; rest between iterations is no miss."""
        while len(self._waiting) > 1 and self._waiting[1].due_s <= now_s:
            missed = self._waiting.popleft()
            self.overtaken += missed.clock_mhz is not None and missed.due_s < self._waiting[0].due_s

    def _send_waiting(self, now_s: float) -> None:
        """Send what waits, in as few packets as hold it, as far as there is room."""
        self._drop_missed(now_s)
        lines = [encode_request(one.number, one.clock_mhz, one.at_s) for one in self._waiting]
        if self._behind is not None:
            lines.append(encode(self._behind))
        while lines:
            fit, size = 0, -1
            while fit < len(lines) and size + 1 + len(lines[fit]) <= MAX_BYTES:
                size += 1 + len(lines[fit])
                fit += 1
            if not self._send(b"\n".join(lines[:fit])):
                return
            del lines[:fit]
            for _ in range(fit):
                if self._waiting:
                    self._waiting.popleft()
                else:
                    self._behind = None

    def _send(self, packet: bytes) -> bool:
        """Send now or not at all; a broken connection is the listener's to notice."""
        if self._socket is None:
            return False
        try:
            self._socket.send(packet)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class ScheduledRequests:
    """Ask a guard ahead of time; it writes each clock when it is due, whatever this process does by then.

    The guard reports which requests are done, and how long its driver's slow calls take. It is asked for a
    report behind other requests, and at a call of `poll`, when a higher clock is overdue as far as is known
    here (`overdue_s`). At most one question is open at a time.
    """

    def __init__(self, send_queue: SendQueue, failure: Callable[[], DeviceError | None]) -> None:
        self.counts = RequestCounts()
        self._before = RequestCounts()
        self._send_queue = send_queue
        self._failure = failure
        self._patience_s = float("inf")
        self._raises: deque[tuple[int, float]] = deque(maxlen=_MAX_UNKNOWN)  # (number, due_s), not known done
        self._clock_mhz: int | None = None
        self._questioned_s: float | None = None
        self._late_raises = self._reported_overtaken = self._dropped = 0
        self._behind = False
        self._lock = threading.Lock()

    def expect(self, latency_s: float) -> None:
        """Note how long a change takes, and so when a higher clock is overdue."""
        self._patience_s = overdue_s(latency_s)

    def ask(self, requests: Sequence[DatedClock]) -> None:
        """Hand requests over; never blocks.

        Raises:
            DeviceError: the guard refused an earlier request, or is gone.
        """
        failure = self._failure()
        if failure is not None:
            raise failure
        with self._lock:
            behind = _REPORT if self._wants_report() else None
            clocks = [(one.clock_mhz, one.due_s) for one in requests]
            last = self._send_queue.request(*clocks, behind=behind)
            self._count_dropped()
            for number, one in enumerate(requests, start=last + 1 - len(requests)):
                if self._clock_mhz is not None and (one.clock_mhz is None or one.clock_mhz > self._clock_mhz):
                    self._raises.append((number, one.due_s))
                self._clock_mhz = one.clock_mhz

    def close(self) -> None:
        """Give the clock back now; what is not due yet gives way."""
        if self._failure() is None:
            self._send_queue.request((None, None))

    def poll(self) -> bool:
        """Ask for a report if it is time; return whether all higher clocks are stored, as far as is known.

        Cost: one packet at most; never blocks.
        """
        with self._lock:
            if self._wants_report():
                self._send_queue.send(_REPORT)
            asked_s = self._questioned_s
            unanswered = asked_s is not None and time.monotonic() > asked_s + self._patience_s
            return not (unanswered or self._behind)

    def restart(self) -> None:
        """Go on with another guard, which counts from nothing."""
        with self._lock:
            self._before = replace(self.counts)
            self._questioned_s, self._late_raises, self._reported_overtaken = None, 0, 0
            self._raises.clear()

    def on_report(self, report: Message) -> bool:
        """Take in a report; return whether a higher clock came late that was not reported yet."""

        def value(key: str) -> float:
            found = report.get(key)
            return float(found) if isinstance(found, int | float) else 0.0

        with self._lock:
            self._patience_s = max(self._patience_s, value("slow_call_s"))
            self.counts.changes = self._before.changes + int(value("changes"))
            self.counts.late = self._before.late + int(value("late"))
            self.counts.longest_late_s = max(self._before.longest_late_s, value("longest_late_s"))
            overtaken = int(value("overtaken"))
            self.counts.overtaken += overtaken - self._reported_overtaken
            self._reported_overtaken = overtaken
            self._count_dropped()
            while self._raises and self._raises[0][0] <= value("number"):
                self._raises.popleft()
            self._questioned_s = None
            late_raises, was_behind = int(value("late_raises")), self._behind
            self._behind = bool(self._raises) and value("at_s") > self._raises[0][1] + self._patience_s
            news = late_raises > self._late_raises or (self._behind and not was_behind)
            self._late_raises = max(self._late_raises, late_raises)
            return news

    def _count_dropped(self) -> None:
        """Count what missed its moment on the way to the guard, for want of room."""
        self.counts.overtaken += self._send_queue.overtaken - self._dropped
        self._dropped = self._send_queue.overtaken

    def _wants_report(self) -> bool:
        """Return whether a question is due; from then on it is on its way."""
        now_s = time.monotonic()
        due = bool(self._raises) and now_s > self._raises[0][1] + self._patience_s
        if not due or self._questioned_s is not None:
            return False
        self._questioned_s = now_s
        return True


class Heartbeat:
    """Times of heartbeats, and how many were sent since the guard's last answer.

    A guard that answers none for a lease hangs. Beats are counted and not seconds: a job that was suspended,
    or starved, has sent none meanwhile.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._every_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_BEAT_S)
        self._max_unanswered = 1 + round(lease_s / self._every_s)
        self.start()

    def start(self) -> None:
        """Begin with a guard that has just answered."""
        self._unanswered = 0
        self._due_s = self._now_s() + self._every_s

    def left_s(self) -> float:
        """Seconds until the next beat is due."""
        return max(0.0, self._due_s - self._now_s())

    def sent(self) -> None:
        """Note that a beat was sent, after what had arrived until then was read."""
        self._unanswered += 1
        self._due_s = self._now_s() + self._every_s

    def answered(self) -> None:
        """Note that the guard has answered."""
        self._unanswered = 0

    @property
    def in_doubt(self) -> bool:
        """Return whether the guard does not answer just now."""
        return self._unanswered >= _DOUBTED

    @property
    def hangs(self) -> bool:
        """Return whether the guard has not answered for a lease."""
        return self._unanswered >= self._max_unanswered


@dataclass(frozen=True, slots=True)
class Lease:
    """The answer of a guard that hands a GPU over, with the least clock that it sets.

    ``scheduled``: it makes requests at moments to come, by a clock that is ours too.
    """

    floor_mhz: int
    scheduled: bool


def take(sock: socket.socket, wanted: bytes) -> Lease:
    """Ask for a GPU.

    Raises:
        DeviceError: refused, or no answer.
    """
    asked_s = time.monotonic()
    answer = ask(sock, wanted)
    sock.setblocking(False)
    floor_mhz, now_s = answer.get("floor_mhz"), answer.get("now_s")  # another time namespace has another now
    return Lease(
        floor_mhz if isinstance(floor_mhz, int) else 0,
        isinstance(now_s, float) and asked_s <= now_s <= time.monotonic(),
    )


def reacquire(
    connect: Callable[[], socket.socket], wanted: bytes, *, over: threading.Event
) -> socket.socket | None:
    """Ask, ever less often, until the GPU is ours again; ``None``: it is ``over`` before.

    Cost: a call to a socket; at last ten of them a second.

    Raises:
        DeviceError: refused for good.
    """
    pauses = pauses_s()
    while not over.wait(next(pauses)):
        try:
            sock = connect()
        except DeviceError:  # a service that is not there yet
            continue
        try:
            take(sock, wanted)
        except DeviceError as error:
            sock.close()
            if not is_transient(error):
                raise
        else:
            return sock
    return None


class GuardClient:
    """A connection to a guard, ours or the node's.

    With ``connect`` a guard that is gone, or hangs, is asked again by this client's own thread, ever less
    often. That ends when it hands the GPU over once more or refuses for good; what is asked meanwhile waits.
    Without, its end is the end of control, and ``on_lost`` is called.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_lost: Callable[[], None] | None = None,
        connect: Callable[[], socket.socket] | None = None,
    ) -> None:
        self.conflicts: Counter[str] = Counter()
        self.conflict_lines: dict[str, str] = {}
        self.failure: DeviceError | None = None
        self.refused_mhz: frozenset[int] = frozenset()
        self._socket = sock
        self._send_queue = SendQueue(sock)
        self.scheduled = ScheduledRequests(self._send_queue, lambda: self.failure)
        self._expects: Message | None = None
        self._on_lost = on_lost
        self._connect = connect
        self._wanted = b""
        self._heartbeat = Heartbeat(_LEASE_S)
        self._away = False
        self._stored = True
        self._over = threading.Event()
        self._synced = False
        self._news = threading.Condition()
        self._closed = False
        self._listener: threading.Thread | None = None
        _clients.add(self)

    def take(self, uuid: str, owner: str, *, backend: str = "nvml", lease_s: float = _LEASE_S) -> Lease:
        """Take control of a GPU.

        Raises:
            DeviceError: refused, or no answer.
        """
        fields: Message = {"do": "take", "uuid": uuid, "owner": owner, "backend": backend, "lease_s": lease_s}
        self._wanted = encode(fields)
        lease = take(self._socket, self._wanted)
        self._heartbeat = Heartbeat(lease_s)
        self._listener = threading.Thread(target=self._listen, name="perseus-guard-client", daemon=True)
        self._listener.start()
        return lease

    @property
    def in_control(self) -> bool:
        """Return whether a guard is there that does what is asked, as far as is known."""
        if self.failure is not None or self._away or self._heartbeat.in_doubt:
            return False
        stored = self.scheduled.poll()
        if not stored and self._stored:
            self._note_conflict(ConflictKind.NOT_STORED)
        self._stored = stored
        return stored

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int) -> None:
        """State what plans expect; a guard that takes over is informed again."""
        self.scheduled.expect(latency_s)
        self._expects = {"do": "expect", "call_s": call_s, "latency_s": latency_s, "held_mhz": held_mhz}
        self._send_queue.send(self._expects)

    def request(self, clock_mhz: int | None) -> None:
        """Send a request (``None``: give the clock back) without ever blocking.

        Raises:
            DeviceError: the guard refused an earlier request, or is gone.

        Cost: one send of some 40 bytes, about 15 us where it wakes the guard.
        """
        if self.failure is not None:
            raise self.failure
        self._send_queue.request((clock_mhz, None))

    def sync(self, timeout_s: float = ANSWER_S) -> None:
        """Wait until everything asked so far has been done.

        Raises:
            DeviceError: no answer in time, or the guard refused or is gone.
        """
        until_s = time.monotonic() + timeout_s
        self._synced = False
        while self.failure is None and not self._send_queue.send({"do": "sync"}):
            if time.monotonic() >= until_s:
                break
            time.sleep(0.001)
        with self._news:
            while not self._synced and self.failure is None and time.monotonic() < until_s:
                self._news.wait(0.05)
        if self.failure is not None:  # it was sent before the answer
            raise self.failure
        if not self._synced:
            raise DeviceUnavailableError(f"no answer from the guard within {timeout_s:g} s")

    def close(self) -> None:
        """Hang up: the guard restores the clock. The second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.failure = DeviceUnavailableError("the connection to the guard is closed")
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the listener, which closes the rest
        if self._listener is None:
            self._send_queue.close()
        elif self._listener is not threading.current_thread():
            self._listener.join(ANSWER_S)

    def forget(self) -> None:
        """In a forked child: close its copy, so that the guard still sees the parent's end."""
        self._closed = True
        self.failure = DeviceUnavailableError("a forked process does not set clocks")
        with contextlib.suppress(OSError):
            self._socket.close()

    def _listen(self) -> None:
        self._attend()
        while not self._closed and self.failure is None and self._connect is not None:
            self._away = True
            self._note_conflict(ConflictKind.CONTROL_LOST)
            self._send_queue.detach()
            try:
                sock = reacquire(self._connect, self._wanted, over=self._over)
            except DeviceError as error:
                self.failure = error
                break
            if sock is None:
                break
            self._socket = sock
            self._heartbeat.start()
            self.scheduled.restart()
            self._send_queue.attach(sock, self._expects)
            self._away = False
            self._note_conflict(ConflictKind.CONTROL_BACK)
            self._attend()
        self._end()

    def _attend(self) -> None:
        """Beat and listen, as long as the guard is there."""
        heartbeat, poll = self._heartbeat, select.poll()
        poll.register(self._send_queue, select.POLLIN)
        while not self._closed and not heartbeat.hangs:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._send_queue.waits else 0))
            if poll.poll(1000 * heartbeat.left_s()) and not self._receive():
                return
            self._send_queue.flush()
            if not heartbeat.left_s():
                self._send_queue.send({"do": "beat"})
                heartbeat.sent()

    def _receive(self) -> bool:
        """Take in what has arrived; return whether the guard is still there."""
        while True:
            try:
                packet = self._socket.recv(MAX_BYTES)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                continue  # it went with messages of ours unread: its own last ones are still to be read
            except OSError:
                return False
            if not packet:
                return False
            self._heartbeat.answered()
            with contextlib.suppress(MalformedError):
                self._on_message(decode(packet))

    def _on_message(self, message: Message) -> None:
        kind = message.get("is")
        if kind == "refused":
            self.failure = refused(message)
        elif kind == "conflict":
            if isinstance(refused_mhz := message.get("refused_mhz"), int):
                self.refused_mhz |= {refused_mhz}
            name = str(message.get("kind"))
            self.conflict_lines[name] = str(message.get("line"))
            self.conflicts[name] += 1
        elif "late_raises" in message and self.scheduled.on_report(message):
            self._note_conflict(ConflictKind.NOT_STORED)
        with self._news:
            self._synced = self._synced or kind == "synced"
            self._news.notify_all()

    def _note_conflict(self, kind: ConflictKind) -> None:
        self.conflict_lines[kind.name] = kind.text
        self.conflicts[kind.name] += 1

    def _end(self) -> None:
        if not self._closed:
            hangs = self._heartbeat.hangs
            what = "hangs: it has not answered for a whole lease" if hangs else "is gone"
            lost = DeviceUnavailableError(f"the guard {what}; clocks are no longer set")
            self.failure = self.failure or lost
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # should it wake, it finds its client gone
            if self._on_lost is not None:
                self._on_lost()
        with self._news:
            self._news.notify_all()
        self._send_queue.close()


class GuardedGpu(ReadThroughGpu):
    """Reads through ``reader`` in this process; `lock_clock` is a message that never blocks the caller.

    `reset_clock` restores the device's own choice, or the clock that an operator has stated. ``guard`` is the
    process that this one has started, None for the node's service.
    """

    def __init__(
        self,
        reader: Gpu,
        client: GuardClient,
        *,
        guard: SpawnedGuard | None = None,
        lease_s: float = _LEASE_S,
    ) -> None:
        backend = "nvml" if guard is None else guard.backend
        program = Path(sys.argv[0]).name or "python"
        owner = f"{program} (pid {os.getpid()})"
        lease = client.take(reader.identify().uuid, owner, backend=backend, lease_s=lease_s)
        if guard is not None:
            guard.has_taken = True
        super().__init__(reader, _able(reader.capabilities(), lease.floor_mhz))
        self._client = client
        self._guard = guard
        self._scheduled = lease.scheduled
        self._asked_mhz: int | None = None

    def lock_clock(self, clock_mhz: int) -> None:
        """Ask the guard for a clock; returns at once.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            DeviceError: the guard refused an earlier request, or is gone.
        """
        self._check_clock(clock_mhz)
        self._client.request(clock_mhz)
        self._asked_mhz = clock_mhz

    def refused_mhz(self) -> frozenset[int]:
        """Return those that the guard reported: its driver does not take them."""
        return self._client.refused_mhz

    def reset_clock(self) -> None:
        """Ask the guard for the clock without a request; harmless when the guard is gone."""
        self._asked_mhz = None
        with contextlib.suppress(DeviceError):
            self._client.request(None)

    def dated_clocks(self) -> DatedClocks | None:
        """Return what has the guard make requests in its own process; None where its time is not ours."""
        return self._client.scheduled if self._scheduled else None

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int = 0) -> None:
        """Inform the guard what plans expect."""
        if self._scheduled:
            self._client.expect(call_s=call_s, latency_s=latency_s, held_mhz=held_mhz)

    def sync(self) -> None:
        """Wait until the guard has done everything asked so far; never on the training thread's way.

        Raises:
            ValueRefusedError: the driver does not take what was asked for last.
        """
        self._client.sync()
        if self._asked_mhz in self._client.refused_mhz:
            raise ValueRefusedError(f"{self.identify().name}: lock {self._asked_mhz} MHz: refused")

    def conflicts(self) -> tuple[Sighting, ...]:
        """Return what the guard saw of others at work on this GPU: each kind's last line, and its count."""
        lines, counts = self._client.conflict_lines, dict(self._client.conflicts)
        return tuple(
            Sighting(kind, lines[kind.name], counts[kind.name])
            for kind in ConflictKind
            if kind.name in counts
        )

    def given_up(self) -> DeviceError | None:
        """Return the guard's refusal, or that it is gone."""
        return self._client.failure

    def in_control(self) -> bool:
        """Return whether the guard is there and answers."""
        return self._client.in_control

    def close(self) -> None:
        """Hang up and wait until the guard has restored the clock, or do it for one that was killed."""
        self._client.close()
        if self._guard is not None:
            self._guard.ensure_restored()
            self._guard = None
        super().close()


def _able(reader: Capabilities, floor_mhz: int) -> Capabilities:
    """The reader's answer, with the guard's right to lock, down to the guard's floor."""
    clocks_mhz = tuple(clock for clock in reader.clocks_mhz if clock >= floor_mhz)
    why_not = None if clocks_mhz else reader.why_not
    return replace(reader, clocks_mhz=clocks_mhz, can_lock=why_not is None, why_not=why_not)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The node service's release, rules and leases, as it reports them."""

    version: str
    rules: int
    floor_mhz: int
    leases: tuple[Message, ...]


def connect(path: Path) -> socket.socket:
    """Connect to the node's service that listens at a path.

    Raises:
        DevicePermissionError: the socket is not for this user.
        DeviceUnavailableError: nobody listens.
    """
    sock = socket.socket(socket.AF_UNIX, KIND)
    try:
        sock.connect(str(path))
    except PermissionError as error:
        sock.close()
        raise DevicePermissionError(f"may not open {path}", hint="join the group of the socket") from error
    except OSError as error:
        sock.close()
        raise DeviceUnavailableError(
            f"no guardd listens on {path}", hint="ask the operator for perseus-ds guardd"
        ) from error
    return sock


def service_status(path: Path) -> ServiceStatus:
    """Ask the node's service who holds which GPU: for an operator, beside all jobs.

    Raises:
        DeviceError: it is not there, does not answer, or refuses.
    """
    leases: list[Message] = []
    refusal: DeviceError = DeviceUnavailableError("the service does not answer")
    with connect(path) as sock:
        sock.settimeout(ANSWER_S)
        try:
            with contextlib.suppress(OSError):  # a service that hung up has sent all that it will
                sock.send(encode({"do": "status"}))
            while packet := sock.recv(MAX_BYTES):
                answer = decode(packet)
                if answer.get("is") == "lease":
                    leases.append(answer)
                elif answer.get("is") == "status":
                    rules, floor_mhz = answer.get("rules"), answer.get("floor_mhz")
                    return ServiceStatus(
                        version=str(answer.get("version")),
                        rules=rules if isinstance(rules, int) else 0,
                        floor_mhz=floor_mhz if isinstance(floor_mhz, int) else 0,
                        leases=tuple(leases),
                    )
                else:
                    refusal = refused(answer)
        except (OSError, MalformedError) as error:
            raise refusal from error
    raise refusal


_clients: WeakSet[GuardClient] = WeakSet()


def _forget_all() -> None:
    for client in tuple(_clients):
        client.forget()


os.register_at_fork(after_in_child=_forget_all)
