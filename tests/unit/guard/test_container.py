"""Containers and launchers, as a guard finds them."""

import os
from pathlib import Path

import pytest

from perseus_ds.guard.connection import launcher_name, launchers_above
from perseus_ds.guard.containment import in_nodes_pid_namespace, why_unguarded


def test_a_guard_outlives_its_job_in_the_nodes_own_namespace_or_where_a_folder_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for namespace, of_node in (("pid:[4026531836]", True), ("pid:[4026532777]", False)):
        monkeypatch.setattr(Path, "readlink", lambda _, name=namespace: Path(name))
        assert in_nodes_pid_namespace() is of_node
        for folder, safe in (("/run/perseus_ds", True), ("", of_node)):
            monkeypatch.setenv("PERSEUS_GUARD_DIR", folder)
            assert (why_unguarded() is None) is safe
        monkeypatch.delenv("PERSEUS_GUARD_DIR")
        assert (why_unguarded() is None) is of_node


def test_where_nothing_can_be_seen_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(path: Path) -> Path:
        raise OSError(2, "No such file", str(path))

    monkeypatch.setattr(Path, "readlink", no_proc)
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    assert not in_nodes_pid_namespace()
    assert "container" in str(why_unguarded())


# Which processes are launchers that stay until their ranks have ended.


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -u -m deepspeed.launcher.launch --world_info=e30= train.py", "deepspeed.launcher.launch"),
        ("/venv/bin/python3.11 /venv/bin/deepspeed --num_gpus 4 train.py -m small", "deepspeed"),
        ("deepspeed --hostfile hosts train.py", "deepspeed"),
        ("/usr/bin/python3 /usr/bin/torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "torch.distributed.run"),
        ("/venv/bin/python /venv/bin/perseus-ds run -- deepspeed train.py", "perseus-ds"),
        ("python -m perseus_ds run -- deepspeed train.py", "perseus_ds"),
        *((line, None) for line in ("bash -c deepspeed train.py", "-bash", "sshd: alice@pts/0", "")),
        *((line, None) for line in ("slurmstepd: [1234.0]", "/usr/bin/python3 train.py --launcher torchrun")),
        *((line, None) for line in ("python -m torch.utils.data train.py", "python -m")),
    ],
)
def test_a_launcher_is_known_by_its_command_line(line: str, name: str | None) -> None:
    assert launcher_name(line.split()) == name


def test_nothing_is_found_above_a_process_that_is_not_seen_or_whose_parent_is_no_launcher() -> None:
    for pid in (0, 2**22 + 1, os.getpid()):
        assert launchers_above(pid) == {}
