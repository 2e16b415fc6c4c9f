"""The sending end of a connection: it never blocks, and what waits for room is lost only when too late."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from perseus_ds.device.guard.protocol import Message, encode, encode_request, packets


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
