"""A guard in a container is killed with its job; a folder that an operator names keeps its journal."""

from pathlib import Path

import pytest

from perseus_ds.guard.containment import (
    in_nodes_pid_namespace,
    why_unguarded,
)


def test_a_named_folder_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026532777]"))
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "/run/perseus_ds")
    assert why_unguarded() is None
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "")
    assert why_unguarded() is not None


def test_where_nothing_can_be_seen_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(path: Path) -> Path:
        raise OSError(2, "No such file", str(path))

    monkeypatch.setattr(Path, "readlink", no_proc)
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert not in_nodes_pid_namespace()
    assert "container" in str(why_unguarded())


def test_in_the_nodes_own_namespace_a_guard_outlives_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026531836]"))
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert in_nodes_pid_namespace()
    assert why_unguarded() is None
    monkeypatch.setattr(Path, "readlink", lambda _: Path("pid:[4026532777]"))
    assert not in_nodes_pid_namespace()
