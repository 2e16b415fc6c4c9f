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
from dataclasses import dataclass
from weakref import WeakSet

from perseus_ds.device.guard.wire import MAX_BYTES, MalformedError, Message, decode, encode, refused, request
from perseus_ds.errors import DeviceError, DeviceUnavailableError

_ANSWER_S = 20.0
_BEATS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class Taken:
    """What a guard says when it hands a GPU over: an operator's lock, if any, and the least clock it sets."""

    found_mhz: int | None
    floor_mhz: int


class GuardLink:
    """A connection to a guard, ours or the node's."""

    def __init__(self, sock: socket.socket, *, on_lost: Callable[[], None] | None = None) -> None:
        self.conflicts: Counter[str] = Counter()
        self.conflict_lines: dict[str, str] = {}
        self.failure: DeviceError | None = None
        self._socket = sock
        self._on_lost = on_lost
        self._sending = threading.Lock()
        self._number = 0
        self._unsent: bytes | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._synced: Message | None = None
        self._answered = threading.Condition()
        self._closed = False
        self._beat_s = 1.0
        self._listener: threading.Thread | None = None
        _links.add(self)

    def take(self, uuid: str, owner: str, *, backend: str = "nvml", lease_s: float = 30.0) -> Taken:
        """Take control of a GPU.

        Raises:
            DeviceError: refused, or no answer.
        """
        self._socket.settimeout(_ANSWER_S)
        try:
            wish: Message = {
                "do": "take",
                "uuid": uuid,
                "owner": owner,
                "backend": backend,
                "lease_s": lease_s,
            }
            self._socket.send(encode(wish))
            answer = decode(self._socket.recv(MAX_BYTES) or b"")
        except (OSError, MalformedError) as error:
            raise DeviceUnavailableError("the guard does not answer", hint="see its message above") from error
        if answer.get("is") != "taken":
            raise refused(answer)
        self._socket.setblocking(False)
        self._beat_s = lease_s / _BEATS_PER_LEASE
        self._listener = threading.Thread(target=self._listen, name="perseus-guard-link", daemon=True)
        self._listener.start()
        found_mhz, floor_mhz = answer.get("found_mhz"), answer.get("floor_mhz")
        return Taken(
            found_mhz if isinstance(found_mhz, int) else None, floor_mhz if isinstance(floor_mhz, int) else 0
        )

    def ask(self, clock_mhz: int | None) -> None:
        """Send a request (``None``: as it was found) without ever blocking.

        With the socket full, the newest request waits for room and those before it are dropped.

        Raises:
            DeviceError: the guard refused an earlier request, or is gone.

        Cost: one send of some 40 bytes, about 15 us where it wakes the guard.
        """
        if self.failure is not None:
            raise self.failure
        with self._sending:
            self._number += 1
            packet = request(self._number, clock_mhz)
            if self._unsent is not None or not self._send(packet):
                self._unsent = packet
                self._wake_listener()

    def sync(self, timeout_s: float = _ANSWER_S) -> Message:
        """Wait until everything asked so far has been done; return the writer's figures.

        Raises:
            DeviceUnavailableError: no answer in time, or the guard is gone.
        """
        until_s = time.monotonic() + timeout_s
        self._synced = None
        while not self._try_sync() and time.monotonic() < until_s:
            time.sleep(0.001)
        answer = self._answer(until_s)
        if answer is None:
            raise self.failure or DeviceUnavailableError(f"no answer from the guard within {timeout_s:g} s")
        return answer

    def close(self) -> None:
        """Hang up: the guard puts the clock back. The second call does nothing."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the listener, which closes the rest
            if self._listener is None:
                self._lost()
            elif self._listener is not threading.current_thread():
                self._listener.join(_ANSWER_S)

    def _try_sync(self) -> bool:
        with self._sending:
            return self._closed or (self._unsent is None and self._send(encode({"do": "sync"})))

    def _answer(self, until_s: float) -> Message | None:
        with self._answered:
            while self._synced is None and self.failure is None and time.monotonic() < until_s:
                self._answered.wait(0.05)
            return self._synced

    def _send(self, packet: bytes) -> bool:
        """Send now or not at all; a broken connection is noticed by the listener."""
        try:
            self._socket.send(packet)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        beaten_s = time.monotonic()
        while not self._closed:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent is not None else 0))
            ready = dict(poll.poll(max(0.0, beaten_s + self._beat_s - time.monotonic()) * 1000))
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            if self._socket.fileno() in ready and not self._hear():
                break
            self._flush()
            if time.monotonic() >= beaten_s + self._beat_s:
                beaten_s = time.monotonic()
                with self._sending:
                    self._send(encode({"do": "beat"}))
        self._lost()

    def _wake_listener(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _flush(self) -> None:
        with self._sending:
            if self._unsent is not None and self._send(self._unsent):
                self._unsent = None

    def _hear(self) -> bool:
        while True:
            try:
                packet = self._socket.recv(MAX_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not packet:
                return False
            with contextlib.suppress(MalformedError):
                self._note(decode(packet))

    def _note(self, message: Message) -> None:
        sort = message.get("is")
        if sort == "refused":
            self.failure = refused(message)
        elif sort == "conflict":
            kind = str(message.get("kind"))
            self.conflict_lines[kind] = str(message.get("line"))
            self.conflicts[kind] += 1
        with self._answered:
            if sort == "synced":
                self._synced = message
            self._answered.notify_all()

    def _lost(self) -> None:
        if not self._closed:
            self.failure = DeviceUnavailableError("the guard is gone; clocks are no longer set")
            if self._on_lost is not None:
                self._on_lost()
        with self._answered:
            self._answered.notify_all()
        with self._sending:
            self._socket.close()
            os.close(self._wake)
            self._wake = -1

    def forget(self) -> None:
        """In a forked child: close its copy, so that the guard still sees the parent's end."""
        self._closed = True
        self.failure = DeviceUnavailableError("a forked process does not set clocks")
        with contextlib.suppress(OSError):
            self._socket.close()


_links: WeakSet[GuardLink] = WeakSet()


def _forget_all() -> None:
    for link in tuple(_links):
        link.forget()


os.register_at_fork(after_in_child=_forget_all)
