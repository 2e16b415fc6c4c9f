"""Prolog and epilog of Slurm: a node is drained for a clock that stays locked, and for nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "guardd"


def command(folder: Path, body: str) -> Path:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(script: str, **environment: object) -> subprocess.CompletedProcess[str]:
    """As Slurm does: with next to nothing in PATH."""
    words = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", **environment}
    own = {name: str(value) for name, value in words.items()}
    return subprocess.run(SCRIPTS / script, env=own, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        pytest.param("echo GPU-0: put back", 0, "", id="put back"),
        pytest.param("echo GPU-1: left alone", 0, "", id="a living job"),
        pytest.param("echo 'GPU-0: failed: driver'; exit 1", 1, "lives", id="a clock stays locked"),
        pytest.param("echo 'GPU-0: failed: driver'; exit 3", 0, "again", id="beside a living job"),
        pytest.param("exit 2", 0, "not known", id="another release's usage"),
        pytest.param("kill -9 $$", 0, "not known", id="killed"),
        pytest.param("exec sleep 600", 0, "not known", id="a driver that hangs"),
    ],
)
def test_the_epilog_fails_only_for_a_clock_that_nobody_would_put_back(
    tmp_path: Path, body: str, code: int, said: str
) -> None:
    done = run("slurm-epilog", PERSEUS_DS=command(tmp_path, body), PERSEUS_SECONDS=1)
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "words", "said"),
    [
        pytest.param("exit 0", ["is-active"], "", id="it runs"),
        pytest.param('[ "$1" = start ]', ["is-active", "start"], "", id="it is started"),
        pytest.param("exit 3", ["is-active", "start"], "default clocks", id="it does not start"),
        pytest.param("exec sleep 600", ["is-active", "start"], "default clocks", id="a manager that hangs"),
    ],
)
def test_the_prolog_never_fails(tmp_path: Path, body: str, words: list[str], said: str) -> None:
    log = tmp_path / "log"
    systemctl = command(tmp_path, f'echo "$1" >> {log}\n{body}')
    done = run("slurm-prolog", PERSEUS_SYSTEMCTL=systemctl, PERSEUS_SECONDS=1)
    assert (done.returncode, done.stdout) == (0, "")
    assert log.read_text().split() == words
    assert said in done.stderr


def test_both_can_be_run_and_without_our_program_or_systemd_drain_no_node(tmp_path: Path) -> None:
    assert all(os.access(SCRIPTS / name, os.X_OK) for name in ("slurm-prolog", "slurm-epilog"))
    done = run("slurm-epilog", PERSEUS_DS=tmp_path / "none")
    assert (done.returncode, "not known" in done.stderr) == (0, True)
    assert run("slurm-prolog", PERSEUS_SYSTEMCTL=tmp_path / "none").returncode == 0
