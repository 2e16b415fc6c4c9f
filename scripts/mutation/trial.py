"""One run of a room's quick tests, in a fork of a process that has imported what takes long to import.

Of the product itself nothing is imported before the fork: every run reads the copy anew.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import networkx as nx
import numba
import numpy as np
import pydantic
import pytest
import scipy.optimize
from cosmic_ray.work_item import TestOutcome

WARM = (nx, numba, np, pydantic, pytest, scipy.optimize)
_LOOK_S = 0.05


def run_tests(
    copy: Path, tests: Sequence[str], surroundings: Mapping[str, str], timeout_s: float
) -> tuple[TestOutcome, str]:
    """Run tests to the first failure; who does not come to an end is killed, with all that it started."""
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _become_the_tests(copy, tests, surroundings, output.fileno())
        try:
            code = _wait(pid, timeout_s)
        finally:
            _kill(pid)
        output.seek(0)
        said = output.read().decode(errors="replace")
    if code is None:
        return TestOutcome.KILLED, f"no end within {timeout_s:.0f} s"
    return (TestOutcome.SURVIVED if code == 0 else TestOutcome.KILLED), said


def _become_the_tests(copy: Path, tests: Sequence[str], surroundings: Mapping[str, str], output: int) -> None:
    """Never return: this is the child."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        os.environ.update(surroundings)
        tempfile.tempdir = None
        numba.config.CACHE_DIR = surroundings.get("NUMBA_CACHE_DIR", "")
        sys.dont_write_bytecode = True  # two changes within a second would look alike
        sys.path[:] = [str(copy), *(place for place in sys.path if place != str(Path(__file__).parent))]
        quick = ["-m", "not e2e and not slow"]
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *quick, *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _wait(pid: int, timeout_s: float) -> int | None:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_S)
    return None


def _kill(pid: int) -> None:
    """End the group that the tests lead, and take its exit in."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
