"""The trainer's end of a guard: a GPU that is read here and whose clock is a message to the guard.

`GuardedGpu` is what the runtime uses. A thread of its own reads what the guard reports and sends beats.
Requests go out on whatever thread asks (`RequestChannel`), never blocking.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, DatedClocks, RequestCounts
from perseus_ds.device.gpu import Capabilities, ConflictKind, Gpu, Sighting
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
    error_in,
    number,
)

if TYPE_CHECKING:
    from perseus_ds.guard.spawn import SpawnedGuard

DEFAULT_SOCKET = Path("/run/perseus-guardd/guardd.sock")

_LEASE_S = 30.0
_BEATS_PER_LEASE = 3
_LONGEST_BEAT_S = 1.0
_DOUBTED = 3  # beats without an answer, so that two had their time
_LINES_AT_ONCE = 32  # in a packet of `MAX_BYTES`: a request is at most 90 bytes long


class RequestChannel:
    """Sends clock requests to a guard, which makes each when it is due, whatever this process does by then.

    Sending never blocks. While the socket is full, or no guard is there (`detach`), requests wait by the
    guard's own rule (`ClockAgenda`), and `fileno` becomes readable, so that a listener calls `flush` when
    there is room. Another guard (`attach`) is asked again for what was asked last. ``dated`` is false where
    guard and client read different clocks, and requests are for now. ``failure`` ends all requests.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.failure: DeviceError | None = None
        self.dated = True
        self._socket: socket.socket | None = sock
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._number = 0
        self._agenda = ClockAgenda()
        self._last: list[DatedClock] = []
        self._before = RequestCounts()  # of the guards before this one
        self._reported_overtaken = self._late_raises = 0

    @property
    def counts(self) -> RequestCounts:
        return self._agenda.counts

    @property
    def waits(self) -> bool:
        return bool(self._agenda)

    def fileno(self) -> int:
        """Return what becomes readable when a request begins to wait."""
        return self._wake

    def ask(self, requests: Sequence[DatedClock]) -> None:
        """Send requests, or have them wait.

        Raises:
            DeviceError: the guard refused an earlier request, or is gone.

        Cost: one send of some 40 bytes a request, about 15 us where it wakes the guard.
        """
        if self.failure is not None:
            raise self.failure
        with self._lock:
            now_s, waited = time.monotonic(), self.waits
            self._last = []
            for one in requests:
                self._number += 1
                self._last.append(DatedClock(one.due_s, one.clock_mhz, number=self._number))
                self._agenda.put(self._last[-1])
            if waited:
                self._agenda.drop_missed(now_s)
                return
            self._send_waiting(now_s)
            if self.waits and self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give the clock back now; what is not due yet gives way."""
        if self.failure is None:
            self.ask([DatedClock(time.monotonic(), None)])

    def send(self, message: Message) -> bool:
        """Send a message behind all requests, if there is room for it now."""
        with self._lock:
            return not self.waits and self._send(encode(message))

    def flush(self) -> None:
        with self._lock:
            if self._wake >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._send_waiting(time.monotonic())

    def on_report(self, report: Message) -> bool:
        """Take in the guard's counts; return whether a higher clock came late since its last report."""
        with self._lock:
            counts, before = self.counts, self._before
            counts.changes = before.changes + int(number(report, "changes"))
            counts.late = before.late + int(number(report, "late"))
            counts.longest_late_s = max(before.longest_late_s, number(report, "longest_late_s"))
            overtaken, late_raises = int(number(report, "overtaken")), int(number(report, "late_raises"))
            counts.overtaken += overtaken - self._reported_overtaken
            is_news = late_raises > self._late_raises
            self._reported_overtaken, self._late_raises = overtaken, late_raises
            return is_news

    def detach(self) -> None:
        """Close the socket of a guard that is gone; what was asked last, and is meanwhile, waits."""
        with self._lock:
            self._hang_up()
            now_s, waiting, last = time.monotonic(), list(self._agenda), self._last
            self._agenda.clear()
            older = (one for one in waiting if not last or one.number < last[0].number)
            due = [one for one in last if one.due_s <= now_s]  # the lost guard made all but the newest
            for one in (*older, *due[-1:], *(one for one in last if one.due_s > now_s)):
                self._agenda.put(one)

    def attach(self, sock: socket.socket, first: Message | None = None) -> None:
        """Go on with another guard, which counts from nothing: ``first``, then what was asked last."""
        with self._lock:
            self._socket = sock
            self._before = replace(self.counts)
            self._reported_overtaken = self._late_raises = 0
            if first is not None:
                self._send(encode(first))
            os.eventfd_write(self._wake, 1)

    def end(self) -> None:
        with self._lock:
            self._hang_up()
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send_waiting(self, now_s: float) -> None:
        """Send what waits, in as few packets as hold it, as far as there is room."""
        self._agenda.drop_missed(now_s)
        dated = self.dated
        lines = [
            encode_request(one.number, one.clock_mhz, one.due_s if dated else None) for one in self._agenda
        ]
        for first in range(0, len(lines), _LINES_AT_ONCE):
            fit = lines[first : first + _LINES_AT_ONCE]
            if not self._send(b"\n".join(fit)):
                return
            for _ in fit:
                self._agenda.pop()

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


class Heartbeat:
    """Times of heartbeats, and how many were sent since the guard's last answer.

    A guard that answers none for a lease ``hangs``; it is ``in_doubt`` earlier. Beats are counted and not
    seconds: a job that was suspended, or starved, has sent none meanwhile.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._every_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_BEAT_S)
        self._max_unanswered = 1 + round(lease_s / self._every_s)
        self._due_s, self._unanswered = now_s() + self._every_s, 0

    def left_s(self) -> float:
        return max(0.0, self._due_s - self._now_s())

    def sent(self) -> None:
        """Note that a beat was sent, after what had arrived until then was read."""
        self._unanswered += 1
        self._due_s = self._now_s() + self._every_s

    def on_answer(self) -> None:
        self._unanswered = 0

    @property
    def in_doubt(self) -> bool:
        return self._unanswered >= _DOUBTED

    @property
    def hangs(self) -> bool:
        return self._unanswered >= self._max_unanswered


def reacquire(
    connect: Callable[[], socket.socket], wanted: bytes, *, over: threading.Event
) -> socket.socket | None:
    """Ask, ever less often (at last ten times a second), until the GPU is ours again or refused for good.

    Returns None where it is ``over`` before.
    """
    pauses = pauses_s()
    while not over.wait(next(pauses)):
        try:
            sock = connect()
        except (DeviceError, OSError):  # a service that is not there yet, or no descriptor is left
            continue
        try:
            ask(sock, wanted)
        except DeviceError as error:
            sock.close()
            if not is_transient(error):
                raise
        else:
            sock.setblocking(False)
            return sock
    return None


def _of_reader(name: str) -> Callable[..., Any]:
    def call(self: ReadThroughGpu) -> object:
        return getattr(self.reader, name)()

    return call


class ReadThroughGpu(Gpu):
    """Everything but the clock comes from ``reader``; who inherits sets clocks and may narrow the grid."""

    def __init__(self, reader: Gpu, able: Capabilities) -> None:
        self.reader = reader
        self._able = able

    identify = _of_reader("identify")
    achieved = _of_reader("achieved")
    energy_j = _of_reader("energy_j")
    power_w = _of_reader("power_w")
    temperature_c = _of_reader("temperature_c")
    now_s = _of_reader("now_s")
    operator_settings = _of_reader("operator_settings")
    load_pct = _of_reader("load_pct")
    opened_elsewhere = _of_reader("opened_elsewhere")
    busy = _of_reader("busy")
    close = _of_reader("close")

    def capabilities(self) -> Capabilities:
        return self._able


class GuardedGpu(ReadThroughGpu):
    """A GPU that is read through ``reader`` here; `lock_clock` is a message that never blocks the caller.

    `reset_clock` restores the device's own choice, or the clock that an operator has stated. ``guard`` is the
    process that this one has started, None for the node's service. With ``connect`` a guard that is gone, or
    hangs, is asked again by a thread of ours, ever less often. That ends when it hands the GPU over once more
    or refuses for good; what is asked meanwhile waits. Without, its end is the end of control.
    """

    def __init__(
        self,
        reader: Gpu,
        sock: socket.socket,
        *,
        guard: SpawnedGuard | None = None,
        connect: Callable[[], socket.socket] | None = None,
        lease_s: float = _LEASE_S,
    ) -> None:
        """Take the GPU; where the guard refuses it, all is closed."""
        self.requests = RequestChannel(sock)
        self._socket, self._connect, self._guard, self._lease_s = sock, connect, guard, lease_s
        self._conflicts: dict[ConflictKind, Sighting] = {}
        self._refused_mhz: frozenset[int] = frozenset()
        self._asked_mhz: int | None = None
        self._expects: Message | None = None
        self._over, self._news = threading.Event(), threading.Condition()
        self._away = self._synced = False
        self._closed = False  # no event: `forget` must not take a lock that another thread held at the fork
        _opened.add(self)
        backend = "nvml" if guard is None else guard.backend
        take: Message = {"do": "take", "backend": backend, "lease_s": lease_s}
        owner, asked_s = f"{Path(sys.argv[0]).name or 'python'} (pid {os.getpid()})", time.monotonic()
        try:
            self._take = encode({**take, "uuid": reader.identify().uuid, "owner": owner})
            answer = ask(sock, self._take)
        except DeviceError:
            self.requests.end()
            if guard is not None:
                guard.wait()
            reader.close()
            raise
        sock.setblocking(False)
        if guard is not None:
            guard.has_taken = True
        now_s, floor_mhz = answer.get("now_s"), answer.get("floor_mhz")
        # another time namespace has another now
        self.requests.dated = isinstance(now_s, float) and asked_s <= now_s <= time.monotonic()
        floor_mhz, able = floor_mhz if isinstance(floor_mhz, int) else 0, reader.capabilities()
        clocks_mhz = tuple(clock for clock in able.clocks_mhz if clock >= floor_mhz)
        why_not = None if able.clocks_mhz else able.why_not
        if able.clocks_mhz and not clocks_mhz:
            why_not = f"the guard sets no clock below {floor_mhz} MHz, and it has {able.grid}"
        super().__init__(
            reader, replace(able, clocks_mhz=clocks_mhz, can_lock=why_not is None, why_not=why_not)
        )
        self._heartbeat = Heartbeat(lease_s)
        self._listener = threading.Thread(target=self._listen, name="perseus-guard-client", daemon=True)
        self._listener.start()

    def lock_clock(self, clock_mhz: int) -> None:
        self.check_clock(clock_mhz)
        self.requests.ask([DatedClock(time.monotonic(), clock_mhz)])
        self._asked_mhz = clock_mhz

    def reset_clock(self) -> None:
        """Ask the guard for the clock without a request; harmless when the guard is gone."""
        self._asked_mhz = None
        with contextlib.suppress(DeviceError):
            self.requests.ask([DatedClock(time.monotonic(), None)])

    def refused_mhz(self) -> frozenset[int]:
        return self._refused_mhz

    def dated_clocks(self) -> DatedClocks | None:
        """Return what has the guard make requests in its own process; None where its time is not ours."""
        return self.requests if self.requests.dated else None

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int = 0) -> None:
        """State what plans expect; a guard that takes over is informed again."""
        if self.requests.dated:
            fields = {"call_s": call_s, "latency_s": latency_s, "held_mhz": held_mhz}
            self._expects = {"do": "expect", **fields}
            self.requests.send(self._expects)

    def sync(self, timeout_s: float = ANSWER_S) -> None:
        """Wait until the guard has done all; raise `ValueRefusedError` where its driver does not take it."""
        until_s = time.monotonic() + timeout_s
        self._synced = False
        asked: socket.socket | None = None  # another guard that takes over is asked again
        while self.given_up() is None and not self._synced:
            if time.monotonic() >= until_s:
                raise DeviceUnavailableError(f"no answer from the guard within {timeout_s:g} s")
            if asked is not (sock := self._socket) and self.requests.send({"do": "sync"}):
                asked = sock
            with self._news:
                if not self._synced and self.given_up() is None:
                    self._news.wait(0.05 if asked is sock else 0.001)
        if (failure := self.given_up()) is not None:  # it was sent before the answer
            raise failure
        if self._asked_mhz in self._refused_mhz:
            raise ValueRefusedError(f"{self.identify().name}: lock {self._asked_mhz} MHz: refused")

    def conflicts(self) -> tuple[Sighting, ...]:
        """Return what the guard saw of others at work on this GPU: each kind's last line, and its count."""
        seen = dict(self._conflicts)
        return tuple(seen[kind] for kind in ConflictKind if kind in seen)

    def given_up(self) -> DeviceError | None:
        return self.requests.failure

    def in_control(self) -> bool:
        return self.given_up() is None and not self._away and not self._heartbeat.in_doubt

    def close(self) -> None:
        """Hang up and wait until the guard has restored the clock, or do it for one that was killed."""
        if not self._closed:
            self._closed = True
            self._over.set()
            self.requests.failure = DeviceUnavailableError("the connection to the guard is closed")
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the listener, which closes the rest
            if self._listener is not threading.current_thread():
                self._listener.join(ANSWER_S)
        if self._guard is not None:
            self._guard.ensure_restored()
            self._guard = None
        self.reader.close()

    def forget(self) -> None:
        """In a forked child: close its copy, so that the guard still sees the parent's end."""
        self._closed = True
        self.requests.failure = DeviceUnavailableError("a forked process does not set clocks")
        with contextlib.suppress(OSError):
            self._socket.close()

    def _listen(self) -> None:
        self._attend()
        while not self._closed and self.given_up() is None and self._connect is not None:
            self._away = True
            self._note(ConflictKind.CONTROL_LOST)
            self.requests.detach()
            try:
                sock = reacquire(self._connect, self._take, over=self._over)
            except DeviceError as error:
                self.requests.failure = error
                break
            if sock is None:
                break
            self._socket, self._heartbeat = sock, Heartbeat(self._lease_s)
            self.requests.attach(sock, self._expects)
            self._away = False
            self._note(ConflictKind.CONTROL_BACK)
            self._attend()
        self._end()

    def _attend(self) -> None:
        """Beat and listen, as long as the guard is there."""
        heartbeat, poll = self._heartbeat, select.poll()
        poll.register(self.requests, select.POLLIN)
        while not self._closed and not heartbeat.hangs:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self.requests.waits else 0))
            if poll.poll(1000 * heartbeat.left_s()) and not self._receive():
                return
            self.requests.flush()
            if not heartbeat.left_s():
                self.requests.send({"do": "beat"})
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
            self._heartbeat.on_answer()
            with contextlib.suppress(MalformedError):
                self._on_message(decode(packet))

    def _on_message(self, message: Message) -> None:
        kind = message.get("is")
        if kind == "refused":
            self.requests.failure = error_in(message)
        elif kind == "conflict":
            if isinstance(refused_mhz := message.get("refused_mhz"), int):
                self._refused_mhz |= {refused_mhz}
            with contextlib.suppress(KeyError):  # a kind of another release
                self._note(ConflictKind[str(message.get("kind"))], str(message.get("line")))
        elif kind == "alive" and self.requests.on_report(message):
            self._note(ConflictKind.NOT_STORED)
        with self._news:
            self._synced = self._synced or kind == "synced"
            self._news.notify_all()

    def _note(self, kind: ConflictKind, line: str = "") -> None:
        before = self._conflicts.get(kind)
        self._conflicts[kind] = Sighting(kind, line or kind.text, 1 + (0 if before is None else before.count))

    def _end(self) -> None:
        if not self._closed:
            hangs = self._heartbeat.hangs
            what = "hangs: it has not answered for a whole lease" if hangs else "is gone"
            lost = DeviceUnavailableError(f"the guard {what}; clocks are no longer set")
            self.requests.failure = self.given_up() or lost
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # should it wake, it finds its client gone
            if (guard := self._guard) is not None:
                guard.ensure_restored()
        with self._news:
            self._news.notify_all()
        self.requests.end()


def connect(path: Path) -> socket.socket:
    """Connect to the node's service that listens at a path.

    Raises:
        DevicePermissionError: the socket is not for this user.
        DeviceUnavailableError: nobody listens.
    """
    sock = socket.socket(socket.AF_UNIX, KIND)
    try:
        sock.connect(str(path))
    except OSError as error:
        sock.close()
        if isinstance(error, PermissionError):
            hint = "join the group of the socket"
            raise DevicePermissionError(f"may not open {path}", hint=hint) from error
        hint = "ask the operator for perseus-ds guardd"
        raise DeviceUnavailableError(f"no guardd listens on {path}", hint=hint) from error
    return sock


def service_status(path: Path) -> tuple[Message, list[Message]]:
    """Ask the node's service for its state and its leases: for an operator, beside all jobs.

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
                if answer.get("is") == "status":
                    return answer, leases
                if answer.get("is") == "lease":
                    leases.append(answer)
                else:
                    refusal = error_in(answer)
        except (OSError, MalformedError) as error:
            raise refusal from error
    raise refusal


_opened: WeakSet[GuardedGpu] = WeakSet()


def _forget_all() -> None:
    for gpu in tuple(_opened):
        gpu.forget()


os.register_at_fork(after_in_child=_forget_all)
