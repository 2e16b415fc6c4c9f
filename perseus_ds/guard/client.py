"""The client's end of a guard: requests that never block, news that a thread of its own reads."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakSet

from perseus_ds.device.clock_agenda import DatedClock, RequestCounts, overdue_s
from perseus_ds.device.gpu import ConflictKind
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.guard.claim import may_pass, pauses_s
from perseus_ds.guard.protocol import (
    MAX_BYTES,
    MalformedError,
    Message,
    Value,
    decode,
    encode,
    encode_request,
    first_answer,
    packets,
    refused,
)

# The sending end of a connection: it never blocks, and what waits for room is lost only when too late.


@dataclass(frozen=True, slots=True)
class _Request:
    """One request; ``at_s`` is what the guard is told, ``due_s`` the same moment, or when it was made."""

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

        A clock of None gives it back, a time of None "now"; ``behind`` is a word that follows them.
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
        """Send a word behind all requests, if there is room for it now."""
        with self._lock:
            return not self.waits and self._send(encode(message))

    @property
    def waits(self) -> bool:
        """Whether a request waits for room."""
        return bool(self._waiting) or self._behind is not None

    def fileno(self) -> int:
        """What becomes readable when a request begins to wait."""
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
            due = [
                one for one in last if one.due_s <= now_s
            ]  # the guard that is gone made all but the newest
            for one in (*older, *due[-1:], *(one for one in last if one.due_s > now_s)):
                self._put(one)

    def attach(self, sock: socket.socket, first: Message | None = None) -> None:
        """Go on over another socket, with what was asked last behind a ``first`` word."""
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
        """Drop requests that a newer one, due by now, has overtaken; rest between iterations is no miss."""
        while len(self._waiting) > 1 and self._waiting[1].due_s <= now_s:
            missed = self._waiting.popleft()
            self.overtaken += missed.clock_mhz is not None and missed.due_s < self._waiting[0].due_s

    def _send_waiting(self, now_s: float) -> None:
        """Send what waits, in few packets, as far as there is room."""
        self._drop_missed(now_s)
        for packet in packets(self._messages()):
            if not packet or not self._send(packet):  # an empty one would end the connection
                return
            for _ in packet.split(b"\n"):
                if self._waiting:
                    self._waiting.popleft()
                else:
                    self._behind = None

    def _messages(self) -> Iterator[bytes]:
        for one in tuple(self._waiting):
            yield encode_request(one.number, one.clock_mhz, one.at_s)
        if self._behind is not None:
            yield encode(self._behind)

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


# Requests for moments to come, handed to a guard that makes each in its own process, and what it reports.

_MOST_UNKNOWN = 4096
_REPORT: Message = {"do": "report"}


@dataclass(frozen=True, slots=True)
class _Raise:
    """A higher clock that was asked for, and is not known to be stored."""

    number: int
    due_s: float


class DatedRequests:
    """Ask a guard ahead of time; it writes each clock when it is due, whatever this process does by then.

    The guard reports which requests are done, and how long its driver's slow calls take. It is asked for one
    behind other requests. It is also asked at a call of `look`, when a higher clock is overdue as far as is
    known here (`overdue_s`). At most one question is open at a time.
    """

    def __init__(self, send_queue: SendQueue, refused: Callable[[], DeviceError | None]) -> None:
        self.counts = RequestCounts()
        self._before = RequestCounts()
        self._send_queue = send_queue
        self._refused = refused
        self._patience_s = float("inf")
        self._raises: deque[_Raise] = deque(maxlen=_MOST_UNKNOWN)
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
            DeviceError: the guard refused an earlier request, or is gone; or a memory clock is asked for.
        """
        refused = self._refused()
        if refused is not None:
            raise refused
        with self._lock:
            behind = _REPORT if self._wants_report() else None
            clocks = [(one.clock_mhz, one.due_s) for one in requests]
            number = self._send_queue.request(*clocks, behind=behind)
            self._count_dropped()
            for place, one in enumerate(requests, start=number + 1 - len(requests)):
                if self._clock_mhz is not None and (one.clock_mhz is None or one.clock_mhz > self._clock_mhz):
                    self._raises.append(_Raise(place, one.due_s))
                self._clock_mhz = one.clock_mhz

    def close(self) -> None:
        """Give the clock back now; what is not due yet gives way."""
        if self._refused() is None:
            self._send_queue.request((None, None))

    def look(self) -> bool:
        """Ask for a report if it is time; return whether all higher clocks are stored, as far as is known.

        Cost: one packet at most; never blocks.
        """
        with self._lock:
            if self._wants_report():
                self._send_queue.send(_REPORT)
            asked_s = self._questioned_s
            unanswered = asked_s is not None and time.monotonic() > asked_s + self._patience_s
            return not (unanswered or self._behind)

    def begin_anew(self) -> None:
        """Go on with another guard, which counts from nothing."""
        with self._lock:
            self._before = replace(self.counts)
            self._questioned_s, self._late_raises, self._reported_overtaken = None, 0, 0
            self._raises.clear()

    def learn(self, report: Message) -> bool:
        """Take in a report; return whether a higher clock came late that was not reported yet."""
        with self._lock:
            number, at_s = int(_number(report, "number")), _number(report, "at_s")
            self._patience_s = max(self._patience_s, _number(report, "slow_call_s"))
            before = self._before
            self.counts.changes = before.changes + int(_number(report, "changes"))
            self.counts.late = before.late + int(_number(report, "late"))
            overtaken = int(_number(report, "overtaken"))
            self.counts.overtaken += overtaken - self._reported_overtaken
            self._reported_overtaken = overtaken
            self._count_dropped()
            self.counts.longest_late_s = max(before.longest_late_s, _number(report, "longest_late_s"))
            while self._raises and self._raises[0].number <= number:
                self._raises.popleft()
            self._questioned_s = None
            late_raises, was_behind = int(_number(report, "late_raises")), self._behind
            self._behind = bool(self._raises) and at_s > self._raises[0].due_s + self._patience_s
            news = late_raises > self._late_raises or (self._behind and not was_behind)
            self._late_raises = max(self._late_raises, late_raises)
            return news

    def _count_dropped(self) -> None:
        """Count what missed its moment on the way to the guard, for want of room."""
        self.counts.overtaken += self._send_queue.overtaken - self._dropped
        self._dropped = self._send_queue.overtaken

    def _wants_report(self) -> bool:
        """Whether a question is due; from then on it is on its way."""
        now_s = time.monotonic()
        due = bool(self._raises) and now_s > self._raises[0].due_s + self._patience_s
        if not due or self._questioned_s is not None:
            return False
        self._questioned_s = now_s
        return True


def _number(message: Message, key: str) -> float:
    value: Value = message.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


# The beats of a client and their answers: whether the guard at the other end still does its work.

_BEATS_PER_LEASE = 3
_LONGEST_S = 1.0
_DOUBTED = 3  # beats without an answer, so that two had their time


class Heartbeat:
    """When the next beat is due, and how many were sent since the guard's last answer.

    A guard that answers none for a lease hangs. Beats are counted and not seconds: a job that was suspended,
    or starved, has sent none meanwhile. Until the guard has announced that it ``answers`` beats, nothing is
    concluded.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._every_s = min(lease_s / _BEATS_PER_LEASE, _LONGEST_S)
        self._most = 1 + round(lease_s / self._every_s)
        self.answers = False
        self.start()

    def start(self) -> None:
        """Begin with a guard that has just answered."""
        self._unanswered = 0
        self._due_s = self._now_s() + self._every_s

    def left_s(self) -> float:
        """Seconds until the next beat is due."""
        return max(0.0, self._due_s - self._now_s())

    def beaten(self) -> None:
        """Note that a beat was sent, after what had arrived until then was read."""
        self._unanswered += 1
        self._due_s = self._now_s() + self._every_s

    def heard(self) -> None:
        """Note that the guard has answered."""
        self._unanswered = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the guard does not answer just now."""
        return self.answers and self._unanswered >= _DOUBTED

    @property
    def hangs(self) -> bool:
        """Whether the guard has not answered for a lease."""
        return self.answers and self._unanswered >= self._most


# A guard asked for a GPU: once, and again when it was gone, until it hands it over or refuses for good.


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer of a guard that hands a GPU over, with the least clock that it sets.

    ``dated``: it makes requests at moments to come, by a clock that is ours too.
    """

    floor_mhz: int
    dated: bool = False


def take(sock: socket.socket, wanted: bytes, heartbeat: Heartbeat) -> Taken:
    """Ask for a GPU; from its answer on the guard has to answer beats, if it announces that it does.

    Raises:
        DeviceError: refused, or no answer.
    """
    asked_s = time.monotonic()
    answer = first_answer(sock, wanted)
    if answer.get("is") != "taken":
        raise refused(answer)
    sock.setblocking(False)
    heartbeat.answers = answer.get("beats") is True
    heartbeat.start()
    floor_mhz = answer.get("floor_mhz")
    now_s = answer.get("now_s")  # another time namespace has another one
    return Taken(
        floor_mhz if isinstance(floor_mhz, int) else 0,
        dated=isinstance(now_s, float) and asked_s <= now_s <= time.monotonic(),
    )


def take_again(
    connect: Callable[[], socket.socket], wanted: bytes, heartbeat: Heartbeat, *, over: threading.Event
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
        except DeviceError:  # not there yet
            continue
        try:
            take(sock, wanted, heartbeat)
        except DeviceError as error:
            sock.close()
            if not may_pass(error):
                raise
        else:
            return sock
    return None


_ANSWER_S = 20.0


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
        self.dated = DatedRequests(self._send_queue, lambda: self.failure)
        self._expects: Message | None = None
        self._on_lost = on_lost
        self._connect = connect
        self._wanted = b""
        self._heartbeat: Heartbeat | None = None
        self._away = False
        self._stored = True
        self._over = threading.Event()
        self._synced: Message | None = None
        self._answered = threading.Condition()
        self._closed = False
        self._listener: threading.Thread | None = None
        _clients.add(self)

    def take(self, uuid: str, owner: str, *, backend: str = "nvml", lease_s: float = 30.0) -> Taken:
        """Take control of a GPU.

        Raises:
            DeviceError: refused, or no answer.
        """
        wanted: Message = {"do": "take", "uuid": uuid, "owner": owner, "backend": backend, "lease_s": lease_s}
        self._wanted, self._heartbeat = encode(wanted), Heartbeat(lease_s)
        taken = take(self._socket, self._wanted, self._heartbeat)
        self._listener = threading.Thread(
            target=self._listen, args=(self._heartbeat,), name="perseus-guard-client", daemon=True
        )
        self._listener.start()
        return taken

    @property
    def in_control(self) -> bool:
        """Whether a guard is there that does what is asked, as far as is known."""
        in_doubt = self._heartbeat is not None and self._heartbeat.in_doubt
        if self.failure is not None or self._away or in_doubt:
            return False
        stored = self.dated.look()
        if not stored and self._stored:
            self._note_conflict(ConflictKind.NOT_STORED)
        self._stored = stored
        return stored

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int) -> None:
        """State what plans reckon with; a guard that begins anew is informed again."""
        self.dated.expect(latency_s)
        figures = {"call_s": call_s, "latency_s": latency_s, "held_mhz": held_mhz}
        self._expects = {"do": "expect", **figures}
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

    def sync(self, timeout_s: float = _ANSWER_S) -> Message:
        """Wait until everything asked so far has been done; return the writer's figures.

        Raises:
            DeviceError: no answer in time, or the guard refused or is gone.
        """
        until_s = time.monotonic() + timeout_s
        self._synced = None
        while (
            self.failure is None and not self._send_queue.send({"do": "sync"}) and time.monotonic() < until_s
        ):
            time.sleep(0.001)
        answer = self._answer(until_s)
        if self.failure is not None:  # it was said before the answer
            raise self.failure
        if answer is None:
            raise DeviceUnavailableError(f"no answer from the guard within {timeout_s:g} s")
        return answer

    def close(self) -> None:
        """Hang up: the guard puts the clock back. The second call does nothing."""
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
            self._listener.join(_ANSWER_S)

    def forget(self) -> None:
        """In a forked child: close its copy, so that the guard still sees the parent's end."""
        self._closed = True
        self.failure = DeviceUnavailableError("a forked process does not set clocks")
        with contextlib.suppress(OSError):
            self._socket.close()

    def _answer(self, until_s: float) -> Message | None:
        with self._answered:
            while self._synced is None and self.failure is None and time.monotonic() < until_s:
                self._answered.wait(0.05)
            return self._synced

    def _listen(self, heartbeat: Heartbeat) -> None:
        self._attend(heartbeat)
        while not self._closed and self.failure is None and self._connect is not None:
            self._note_control(ConflictKind.CONTROL_LOST, away=True)
            self._send_queue.detach()
            try:
                sock = take_again(self._connect, self._wanted, heartbeat, over=self._over)
            except DeviceError as error:
                self.failure = error
                break
            if sock is None:
                break
            self._socket = sock
            self.dated.begin_anew()
            self._send_queue.attach(sock, self._expects)
            self._note_control(ConflictKind.CONTROL_BACK, away=False)
            self._attend(heartbeat)
        self._lost(heartbeat)

    def _attend(self, heartbeat: Heartbeat) -> None:
        """Beat and listen, as long as the guard is there."""
        poll = select.poll()
        poll.register(self._send_queue, select.POLLIN)
        while not self._closed and not heartbeat.hangs:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._send_queue.waits else 0))
            if poll.poll(1000 * heartbeat.left_s()) and not self._receive(heartbeat):
                return
            self._send_queue.flush()
            if not heartbeat.left_s():
                self._send_queue.send({"do": "beat"})
                heartbeat.beaten()

    def _note_control(self, kind: ConflictKind, *, away: bool) -> None:
        """Count it for the job, which reports it."""
        self._away = away
        self._note_conflict(kind)

    def _note_conflict(self, kind: ConflictKind) -> None:
        self.conflict_lines[kind.name] = kind.text
        self.conflicts[kind.name] += 1

    def _receive(self, heartbeat: Heartbeat) -> bool:
        """Take in what has arrived; return whether the guard is still there."""
        while True:
            try:
                packet = self._socket.recv(MAX_BYTES)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                continue  # it went with words of ours unread: its own last words are still to be read
            except OSError:
                return False
            if not packet:
                return False
            heartbeat.heard()
            with contextlib.suppress(MalformedError):
                self._note(decode(packet))

    def _note(self, message: Message) -> None:
        sort = message.get("is")
        if sort == "refused":
            self.failure = refused(message)
        elif sort == "conflict":
            kind = str(message.get("kind"))
            self.conflict_lines[kind] = str(message.get("line"))
            if isinstance(refused_mhz := message.get("refused_mhz"), int):
                self.refused_mhz |= {refused_mhz}
            self.conflicts[kind] += 1
        elif "late_raises" in message and self.dated.learn(message):
            self._note_conflict(ConflictKind.NOT_STORED)
        with self._answered:
            if sort == "synced":
                self._synced = message
            self._answered.notify_all()

    def _lost(self, heartbeat: Heartbeat) -> None:
        if not self._closed:
            what = "hangs: it has not answered for a whole lease" if heartbeat.hangs else "is gone"
            self.failure = self.failure or DeviceUnavailableError(
                f"the guard {what}; clocks are no longer set"
            )
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # should it wake, it finds its client gone
            if self._on_lost is not None:
                self._on_lost()
        with self._answered:
            self._answered.notify_all()
        self._send_queue.close()


_clients: WeakSet[GuardClient] = WeakSet()


def _forget_all() -> None:
    for client in tuple(_clients):
        client.forget()


os.register_at_fork(after_in_child=_forget_all)
