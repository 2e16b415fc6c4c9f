"""Run a child as if it had been started directly: signals go on to it, its exit code comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Self

from perseus_ds.errors import EngineError

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_THE_KEYBOARD = {signal.SIGINT, signal.SIGQUIT}
_BY_SIGNAL = 128  # as shells number an end by signal


def launch(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start ``command``, wait for its end, return its exit code (128 + n after signal n).

    It gets a session of its own, so that a Ctrl-C reaches it once, through us.

    Raises:
        EngineError: there is no such program.
    """
    with _Relay() as relay:
        try:
            child = subprocess.Popen(command, env=dict(environment), start_new_session=True)  # noqa: S603  # the user's own command
        except OSError as error:
            raise EngineError(f"cannot start {command[0]}: {error.strerror}") from error
        relay.begin(child)
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


class _Relay:
    """Passes signals on to a child; those that come before it is there, as soon as it is."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._pass_on) for number in _PASSED_ON}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self, child: subprocess.Popen[bytes]) -> None:
        """From now on there is somebody to pass them on to."""
        self._child = child
        for number in self._early:
            self._pass_on(number, None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._child is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            if number in _FROM_THE_KEYBOARD:
                os.killpg(self._child.pid, number)  # a terminal sends it to the whole group
            else:
                self._child.send_signal(number)
