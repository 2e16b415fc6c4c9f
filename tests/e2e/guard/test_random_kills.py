"""A few dozen of the thousand random kills of ``scripts/bench/random_kills``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import no_container

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts" / "bench" / "random_kills"))

import fake_nvml
from campaign import run
from node import Node

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(no_container() is not None, reason=no_container() or ""),
    pytest.mark.skipif(fake_nvml.missing_compiler() is not None, reason="no C compiler"),
]


@pytest.fixture
def kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for name in ("FAKE_NVML_STATE", "LD_LIBRARY_PATH", "PERSEUS_GUARD_DIR", "PERSEUS_GUARDD_SOCKET"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    node = Node(tmp_path)
    yield node
    node.close()


def test_no_clock_stays_locked(kills: Node) -> None:
    outcomes = list(run(kills, 12, seed=5))
    assert [one for one in outcomes if one.failed] == []
    assert any(one.locked_before for one in outcomes), "else nothing was tried"
