"""Run a child as if it had been started directly: signals go on to it, its exit code comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

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
    try:
        child = subprocess.Popen(command, env=dict(environment), start_new_session=True)  # noqa: S603  # the user's own command
    except OSError as error:
        raise EngineError(f"cannot start {command[0]}: {error.strerror}") from error
    with _passing_signals_to(child):
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


@contextlib.contextmanager
def _passing_signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        with contextlib.suppress(ProcessLookupError):
            if number in _FROM_THE_KEYBOARD:
                os.killpg(child.pid, number)  # a terminal sends it to the whole group
            else:
                child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
