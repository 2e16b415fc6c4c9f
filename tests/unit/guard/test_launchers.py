"""Which processes are launchers that stay until their ranks have ended."""

import os
import subprocess
import sys

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


CHAIN = """
import os, sys
left, program, code = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if left:
    os.spawnv(os.P_WAIT, program, ["deepspeed", "-S", "-c", code, str(left - 1), program, code])
else:
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("above", "found"), [(1, 1), (3, 3), (8, 8), (10, 8)])
def test_launchers_that_started_each_other_are_all_watched_up_to_eight(above: int, found: int) -> None:
    words = ["deepspeed", "-S", "-c", CHAIN, str(above), sys.executable, CHAIN]
    with subprocess.Popen(
        words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        rank = int(first.stdout.readline())
        launchers = launchers_above(rank)
        first.stdin.close()
    assert [name.partition(",")[0] for name in launchers.values()] == ["deepspeed"] * found
    assert len(set(launchers.values())) == found
    for descriptor in launchers:
        os.close(descriptor)
