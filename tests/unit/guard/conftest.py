"""A guard's folder of each test's own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))
    return tmp_path / "guard"
