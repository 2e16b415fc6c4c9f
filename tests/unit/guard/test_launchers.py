"""Which processes are launchers that stay until their ranks have ended."""

import os

import pytest

from perseus_ds.guard.connection import launcher_name, launchers_above


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
