"""The client's end of a guard: requests that never block, news that a thread of its own reads."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from weakref import WeakSet

from perseus_ds.device.conflict import ConflictKind
from perseus_ds.device.guard.client.dated_requests import DatedRequests
from perseus_ds.device.guard.client.heartbeat import Heartbeat
from perseus_ds.device.guard.client.send_queue import SendQueue
from perseus_ds.device.guard.client.taking import Taken, take, take_again
from perseus_ds.device.guard.protocol import MAX_BYTES, MalformedError, Message, decode, encode, refused
from perseus_ds.errors import DeviceError, DeviceUnavailableError

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
