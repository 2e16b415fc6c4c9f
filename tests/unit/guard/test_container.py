"""Containers and launchers, as a guard finds them."""

import os
from pathlib import Path

import pytest

from perseus_ds.guard.connection import launcher_name, launchers_above
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


# Which processes are launchers that stay until their ranks have ended.


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "/venv/bin/python -u -m deepspeed.launcher.launch --world_info=e30= train.py",
            "deepspeed.launcher.launch",
        ),
        ("/venv/bin/python3.11 /venv/bin/deepspeed --num_gpus 4 train.py -m small", "deepspeed"),
        ("deepspeed --hostfile hosts train.py", "deepspeed"),
        ("/usr/bin/python3 /usr/bin/torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "torch.distributed.run"),
        ("/venv/bin/python /venv/bin/perseus-ds run -- deepspeed train.py", "perseus-ds"),
        ("python -m perseus_ds run -- deepspeed train.py", "perseus_ds"),
        ("bash -c deepspeed train.py", None),
        ("-bash", None),
        ("sshd: alice@pts/0", None),
        ("slurmstepd: [1234.0]", None),
        ("/usr/bin/python3 train.py --launcher torchrun", None),
        ("python -m torch.utils.data train.py", None),
        ("python -m", None),
        ("", None),
    ],
)
def test_a_launcher_is_known_by_its_command_line(line: str, name: str | None) -> None:
    assert launcher_name(line.split()) == name


def test_nothing_is_found_above_a_process_that_is_not_to_be_seen() -> None:
    assert launchers_above(0) == {}
    assert launchers_above(2**22 + 1) == {}


def test_a_parent_that_is_no_launcher_ends_the_search() -> None:
    assert launchers_above(os.getpid()) == {}
