"""A process that looks at one GPU for its trainer: the program, and the trainer's end of it.

A thread that looks 20 times per second takes the interpreter each time from the thread that trains.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from fcntl import F_SETPIPE_SZ, fcntl
from queue import SimpleQueue
from typing import Any

from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.guard.claim import open_gpu
from perseus_ds.runtime.measure.energy.gpu_reader import GpuReader, GpuReading

_PIPE_BYTES = 1 << 20  # as much as Linux lets any user have: looks of ten minutes
_READ_BYTES = 1 << 16
_PATIENCE_S = 2.0  # for a look under way: a driver may block for minutes
_KILLED_S = 0.2

_NOT_FOR_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Launchers and schedulers send these to all of a job. What they mean is the trainer's to decide."""

_LENGTH = struct.Struct("<I")

Message = tuple[Any, ...] | PerseusError | str
"""What was seen, as a plain tuple, which is read faster; the error of a look; or why none could be made."""


class ReadingProcess:
    """Looks at a GPU every so many seconds; `take` returns what was seen since, and never waits.

    It ends with its trainer, however that ends. What is not taken waits in a pipe, then in the process.
    ``error`` is of the look that failed, after which there are no others. ``ended`` is why it ended without
    one; empty while it runs.
    """

    def __init__(self, backend: str, uuid: str, every_s: float) -> None:
        """Start it; its first look comes after about a fifth of a second.

        Raises:
            OSError: no process can be started.
        """
        self._sent, theirs = os.pipe()
        with contextlib.suppress(OSError):
            fcntl(theirs, F_SETPIPE_SZ, _PIPE_BYTES)
        words = [backend, uuid, str(every_s), str(theirs), str(os.getpid())]
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this Python, our own module
                [sys.executable, "-P", "-m", __name__, *words],
                pass_fds=(theirs,),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(self._sent)
            raise
        finally:
            os.close(theirs)
        assert self._process.stdin is not None
        self._pace = self._process.stdin
        self._poll = select.poll()
        self._poll.register(self._sent, select.POLLIN)
        self._rest = b""
        self.error: PerseusError | None = None
        self.ended = ""

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def look_every(self, every_s: float) -> None:
        """Have it look at another pace."""
        with contextlib.suppress(OSError, ValueError):  # it has ended, or was closed by another thread
            os.write(self._pace.fileno(), f"{every_s}\n".encode())

    def take(self) -> list[GpuReading]:
        """Return what was seen since the last time, oldest first.

        Cost: a poll where nothing has come.
        """
        seen: list[GpuReading] = []
        if self.ended or not self._poll.poll(0):
            return seen
        for sent in self._messages():
            if isinstance(sent, tuple):
                seen.append(GpuReading(*sent))
            elif isinstance(sent, PerseusError):
                self.error = self.error or sent
            else:
                self.ended = sent
        return seen

    def _messages(self) -> Iterator[Message]:
        """What has arrived whole; at the end of all, the reason."""
        arrived = os.read(self._sent, _READ_BYTES)
        if not arrived:
            code = self._process.poll()
            yield "it closed its end" if code is None else f"exit code {code}"
        unread = self._rest + arrived
        while len(unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(unread)[0]
            if len(unread) < end:
                break
            yield pickle.loads(unread[_LENGTH.size : end])  # noqa: S301  # our own process's
            unread = unread[end:]
        self._rest = unread

    def close(self) -> None:
        """End it; one that a driver holds up is killed, and left behind if that does not end it either."""
        self._pace.close()
        os.close(self._sent)
        try:
            self._process.wait(0.0 if self.ended else _PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILLED_S)


def main(backend: str, uuid: str, every_s: float, fileno: int, parent: int) -> None:
    """Look, until the trainer closes our input or is gone: its own workers may keep that input open."""
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    messages: SimpleQueue[Message | None] = SimpleQueue()
    sender = threading.Thread(target=_send, args=(fileno, messages), daemon=True)
    sender.start()
    try:
        with open_gpu(backend, uuid) as gpu:
            reader, pace_s = GpuReader(gpu), every_s
            while (told_s := _wait(pace_s)) is not None and os.getppid() == parent:
                pace_s = told_s
                try:
                    messages.put(tuple(reader.look()))
                except Exception as error:  # noqa: BLE001  # the first ends the looks, wherever they are made
                    messages.put(as_perseus_error(error))
                    break
    except PerseusError as error:
        messages.put(str(error))
    messages.put(None)
    sender.join(_PATIENCE_S)


def _wait(pace_s: float) -> float | None:
    """Wait until the next look is due; return the pace from then on, or None at the input's end."""
    if not select.select([sys.stdin], [], [], pace_s)[0]:
        return pace_s
    told = os.read(sys.stdin.fileno(), 4096).split()
    return float(told[-1]) if told else None


def _send(fileno: int, messages: SimpleQueue[Message | None]) -> None:
    """Send all there is; a pipe that is full holds up nobody else."""
    with contextlib.suppress(OSError):  # the trainer is gone
        while (message := messages.get()) is not None:
            content = pickle.dumps(message)
            left = memoryview(_LENGTH.pack(len(content)) + content)
            while left:
                left = left[os.write(fileno, left) :]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
