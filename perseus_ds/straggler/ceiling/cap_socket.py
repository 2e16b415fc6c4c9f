"""A Unix socket on which a site's controller writes ceilings, a line each: we connect and read."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from perseus_ds.files import may_write

_MOST_BYTES = 64 << 10
_RETRY_S = 1.0
_CREDENTIALS = struct.Struct("3i")  # pid, user, group: SO_PEERCRED


class CapSocket:
    """Connect, read what is there, never wait; connect again where the controller went away.

    The controller is believed where it is root, this user, or the owner of the socket's folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: socket.socket | None = None
        self._buffer = b""
        self._retry_at_s = 0.0
        self._complaint = ""

    def __str__(self) -> str:
        return f"unix:{self._path}"

    def lines(self, complaints: list[str]) -> list[bytes]:
        """Return all whole lines that came since; what is wrong goes to ``complaints``, once."""
        if self._connection is None and not self._connected(complaints):
            return []
        assert self._connection is not None
        ended = False
        while len(self._buffer) <= _MOST_BYTES:
            try:
                part = self._connection.recv(4096)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            if not part:
                ended = True
                break
            self._buffer += part
        *whole, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > _MOST_BYTES:
            self._complain(complaints, f"has a line of more than {_MOST_BYTES} bytes")
            ended = True
        elif ended:
            self._complain(complaints, "was closed by its controller: the last ceiling holds on")
        if ended:
            self.close()
        return [line for line in whole if line.strip()]

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._buffer = b""

    def _connected(self, complaints: list[str]) -> bool:
        now_s = time.monotonic()
        if now_s < self._retry_at_s:
            return False
        self._retry_at_s = now_s + _RETRY_S
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))
            user = _CREDENTIALS.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )[1]
            believed = may_write(self._path.parent) | {os.geteuid()}
        except OSError as error:
            connection.close()
            self._complain(complaints, f"{error.strerror or error}: no ceiling comes from there")
            return False
        if user not in believed:
            connection.close()
            self._complain(complaints, f"is served by user {user}, who is not believed here")
            return False
        self._connection, self._complaint = connection, ""
        return True

    def _complain(self, complaints: list[str], what: str) -> None:
        if what != self._complaint:
            self._complaint = what
            complaints.append(f"{self} {what}")
