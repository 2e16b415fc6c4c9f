"""One writer per GPU on a node, also between guards whose folders are not the same.

The lock is a name in the abstract namespace of Unix sockets. The kernel frees it however its holder ends. All
processes that share the node's network namespace see it, whatever folders, mounts and process numbers they
see. Any user may take any name, so the kernel's word decides which holder is believed: root, ourselves, or a
process that may set clocks. One that does not let itself be asked is not believed. A line names the process
that has the socket open. Only root sees everybody's descriptors, and a socket may be passed on, so that is no
proof.

Source: unix(7), "Abstract sockets", SO_PEERCRED; socket(7), SO_SNDTIMEO; proc_net(5), proc_pid_fd(5).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.device.rights import may_set_clocks
from perseus_ds.errors import DeviceHeldError

_BACKLOG = 128
_ANSWER_S = 1  # whole seconds to wait for room in a holder's backlog
_TRIES = 3  # a holder may be about to end
_BETWEEN_ANSWERS_S = 0.001  # a crowd that asks costs its guard no more


class NodeLock:
    """The name of one GPU, held until `release` or the end of this process.

    ``passed`` names the holder that is not believed (``None``: nobody).
    """

    def __init__(self, uuid: str) -> None:
        """Take the name at once or not at all.

        Raises:
            DeviceHeldError: somebody with the right to set clocks holds it.
        """
        self.passed: str | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._answering: threading.Thread | None = None
        for _ in range(_TRIES):
            if self._take(_name(uuid)):
                self._answer()
                return
            holder = _holder(_name(uuid))
            if holder is not None:
                break
        self._socket.close()
        holder = holder or _unasked(_name(uuid))
        if holder.believed:
            raise DeviceHeldError(f"the clock of {uuid} is held by {holder}")
        self.passed = str(holder)

    def release(self) -> None:
        """Let go; the second call does nothing."""
        if self._answering is not None:
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
            self._answering.join()
            self._answering = None
        self._socket.close()

    def _take(self, name: str) -> bool:
        try:
            self._socket.bind(name)
            self._socket.listen(_BACKLOG)
        except OSError:
            return False
        return True

    def _answer(self) -> None:
        """Let everybody who asks see who we are, so that our backlog is never full for long."""
        thread = threading.Thread(target=self._accept, name="perseus-node-lock", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # the backlog has to do
            return
        self._answering = thread

    def _accept(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return
            time.sleep(_BETWEEN_ANSWERS_S)


def is_held(uuid: str) -> bool:
    """Whether somebody who is believed holds the name of a GPU."""
    holder = _holder(_name(uuid))
    return holder is not None and holder.believed


@dataclass(frozen=True, slots=True)
class _Holder:
    """The holder of a name, by the kernel's word, and whether that may be a guard."""

    who: str
    believed: bool

    def __str__(self) -> str:
        if self.believed:
            return f"another guard of this node ({self.who})"
        return f"{self.who} holds its name on this node and has no right to set clocks"


def _name(uuid: str) -> str:
    return f"\0perseus_ds/{uuid}"


def _holder(name: str) -> _Holder | None:
    """The holder of a name; ``None``: it is free by now, or nobody listens."""
    layout = struct.Struct("iii")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _ANSWER_S, 0))
        try:
            probe.connect(name)
        except BlockingIOError:
            return _unasked(name)
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    pid, uid, _ = layout.unpack(credentials)
    believed = uid in {0, os.geteuid()} or may_set_clocks(pid, uid)
    return _Holder(f"user {uid}, process {pid}", believed)


def _unasked(name: str) -> _Holder:
    """A holder that does not let itself be asked: it is named where it is seen, and not believed."""
    return _Holder(process_with(name) or "somebody who does not answer", believed=False)


def process_with(name: str) -> str | None:
    """Name the user and the process that have the socket of a name; ``None``: not visible from here."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(name.replace("\0", "@"))}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and not sockets.isdisjoint(_open_files(entry)):
            return f"user {_user_of(entry)}, process {entry.name}"
    return None


def _inodes(shown: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split(maxsplit=7)
            if words[7:] == [shown]:
                yield words[6]


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())


def _user_of(process: Path) -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = (process / "status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("Uid:"))
    return "unknown"
