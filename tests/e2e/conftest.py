"""A whole lifecycle of a job, run once and looked at by many tests; a node of fake GPUs, and its service.

The only conftest below e2e: its tests import from it by name.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import FakeNvml, eventually
from jobs import STAGES, TRACED, Lifecycle, block, happened, made_once, train_until
from processes import Daemon, Start, allowing, serving
from ranks import config, run_ranks


@pytest.fixture(scope="session")
def lifecycle(tmp_path_factory: pytest.TempPathFactory) -> Lifecycle:
    """Four stages, gradient clipping, traced kernels, from an empty run directory to the first saving."""

    def live(folder: Path) -> Lifecycle:
        run_dir = folder / f"run {os.getpid()}"
        content = config(gradient_clipping=1.0, perseus=block(run_dir, trace_kernels=TRACED))
        return Lifecycle(run_dir, run_ranks(4, train_until, content, STAGES, happened("measured")))

    return made_once(tmp_path_factory, "lifecycle", live)


@pytest.fixture
def node(node: FakeNvml) -> Iterator[FakeNvml]:
    """The node of every test; no process of it may outlive this one."""
    yield node
    try:
        assert eventually(lambda: not node.processes(), 20.0), f"the test has left {node.processes()}"
    finally:  # they would hold the GPUs of the next test
        for number in node.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@pytest.fixture
def start(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    running: list[Daemon] = []

    def start(*rules: str) -> Daemon:
        """Start a service that allows everything, unless there are rules."""
        running.append(serving(tmp_path / "guardd.sock", *allowing(*rules)))
        return running[-1]

    yield start
    for daemon in running:
        daemon.end()
