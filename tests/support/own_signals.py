"""Processes that tests start begin with default signals, whoever started the tests."""

from __future__ import annotations

import signal
from types import FrameType

_INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def hear_what_was_ignored() -> None:
    """Hear what ``nohup`` or a shell's ``&`` has had this process ignore, and do nothing about it.

    An ignored signal stays ignored in every program started from here, one that is heard does not: so tests
    that send signals to their processes see what users see.

    Source: signal(7), "Signal dispositions": execve resets what is caught and keeps what is ignored.
    """
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing)


def begin_as_a_program() -> None:
    """Give a forked process the signals of one that was started afresh."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    del number, frame
