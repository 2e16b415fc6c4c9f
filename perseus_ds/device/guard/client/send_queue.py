"""The sending end of a connection: it never blocks, and of what waits for room only the newest is kept."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

from perseus_ds.device.guard.protocol import Message, encode, encode_request, packets


class SendQueue:
    """Sends clock requests over a non-blocking socket.

    With the socket full, the newest request waits and those before it are dropped. `fileno` then becomes
    readable, so that a listener calls `flush` when there is room. Without a connection (`detach`) the newest
    request waits for the next one (`attach`), which is asked for it in any case.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket: socket.socket | None = sock
        self._lock = threading.Lock()
        self._number = 0
        self._newest: bytes | None = None
        self._unsent: bytes | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def request(self, *clocks: tuple[int | None, float | None], behind: Message | None = None) -> int:
        """Send requests, or keep them as the newest; returns the last one's number at once either way.

        A clock of None is "as it was found", a time of None "now"; ``behind`` is a word that follows them.
        """
        with self._lock:
            messages = []
            for clock_mhz, at_s in clocks:
                self._number += 1
                messages.append(encode_request(self._number, clock_mhz, at_s))
            if behind is not None:
                messages.append(encode(behind))
            for packet in packets(messages):
                self._newest = packet
                if self._unsent is not None or not self._send(packet):
                    self._unsent = packet
                    if self._wake >= 0:
                        os.eventfd_write(self._wake, 1)
            return self._number

    def send(self, message: Message) -> bool:
        """Send a word behind all requests, if there is room for it now."""
        with self._lock:
            return self._unsent is None and self._send(encode(message))

    @property
    def waits(self) -> bool:
        """Whether a request waits for room."""
        return self._unsent is not None

    def fileno(self) -> int:
        """What becomes readable when a request begins to wait."""
        return self._wake

    def flush(self) -> None:
        """Send what waits, if there is room."""
        with self._lock:
            if self._wake >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            if self._unsent is not None and self._send(self._unsent):
                self._unsent = None

    def detach(self) -> None:
        """Close the socket of a guard that is gone, and keep what is asked meanwhile."""
        with self._lock:
            self._hang_up()
            self._unsent = self._newest

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
