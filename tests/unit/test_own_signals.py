"""Tests that are started by ``nohup pytest &`` start processes that can be interrupted all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "support"
CHILD = "import signal; print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGINT).__name__)"
STARTED_BY_NOHUP = f"""
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
if {{heard}}:
    from own_signals import hear_what_was_ignored
    hear_what_was_ignored()
signal.raise_signal(signal.SIGHUP)  # ends neither this process nor what it does
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


def child_of(*, heard: bool) -> str:
    code = STARTED_BY_NOHUP.format(heard=heard)
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def test_what_was_ignored_by_inheritance_is_default_in_what_tests_start() -> None:
    assert child_of(heard=True) == "SIG_DFL default_int_handler"


def test_without_that_it_would_be_inherited() -> None:
    assert child_of(heard=False) != "SIG_DFL default_int_handler"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_nothing_is_ignored_here(number: signal.Signals) -> None:
    assert signal.getsignal(number) is not signal.SIG_IGN
