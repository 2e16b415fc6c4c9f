"""The node's service, for tests that start it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import Daemon


@pytest.fixture
def start(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Daemon]]:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    running: list[Daemon] = []

    def start(*rules: str, floor_mhz: int = 0) -> Daemon:
        running.append(Daemon(tmp_path / "guardd.sock", *rules, floor_mhz=floor_mhz))
        return running[-1]

    yield start
    for daemon in running:
        daemon.end()
