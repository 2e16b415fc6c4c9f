"""Who writes to a run directory: one live job, whoever comes first, on this host or another one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perseus_ds.run_directory.paths import STALE_S, claim, release, touch

TAKE = """
import sys, time
from pathlib import Path
from perseus_ds.run_directory.paths import claim
time.sleep(float(sys.argv[2]))
path, owner = claim(Path(sys.argv[1]))
print(path, owner.pid if owner else 0, flush=True)
sys.stdin.read()
"""


class Job:
    def __init__(self, run_dir: Path, *, delay_s: float = 0.0) -> None:
        command, pipe = [sys.executable, "-c", TAKE, str(run_dir), str(delay_s)], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def answer(self) -> tuple[Path, int]:
        path, _, pid = self.process.stdout.readline().rpartition(" ")
        return Path(path), int(pid)

    def end(self) -> None:
        self.process.communicate()


def lock_of(run_dir: Path, **changes: object) -> Path:
    """A lock as this process writes it, with changes."""
    claim(run_dir)
    lock = run_dir / "lock.json"
    lock.write_text(json.dumps(json.loads(lock.read_text()) | changes))
    return lock


def age(lock: Path, by_s: float) -> None:
    os.utime(lock, (time.time() - by_s,) * 2)


def test_a_lock_names_host_and_process_which_gets_it_again_until_it_is_released(tmp_path: Path) -> None:
    run_dir, lock = tmp_path / "run", tmp_path / "run" / "lock.json"
    assert claim(run_dir) == claim(run_dir) == (run_dir, None)
    content = json.loads(lock.read_text())
    assert (content["host"], content["pid"]) == (os.uname().nodename, os.getpid())
    release(run_dir)
    job = Job(run_dir)
    assert job.answer() == (run_dir, 0)
    release(run_dir)
    assert lock.exists(), "it is another job's by now"
    job.end()
    assert not lock.exists(), "who ends gives its directory back"


@pytest.mark.parametrize("stale", [False, True])
def test_of_jobs_that_start_together_each_has_a_directory_of_its_own(tmp_path: Path, *, stale: bool) -> None:
    for number in range(10):
        run_dir = tmp_path / f"run{number}"
        if stale:
            lock_of(run_dir, started=1)
        jobs = [Job(run_dir, delay_s=random.uniform(0.0, 0.02)) for _ in range(3)]
        found = [job.answer() for job in jobs]
        for job in jobs:
            job.end()
        assert {path.name for path, _ in found} == {run_dir.name, f"{run_dir.name}-2", f"{run_dir.name}-3"}
        first = next(job.process.pid for job, (path, _) in zip(jobs, found, strict=True) if path == run_dir)
        assert {pid for path, pid in found if path != run_dir} == {first}


def test_the_directory_of_a_killed_job_is_free_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.answer()
    job.process.send_signal(signal.SIGKILL)
    assert os.waitid(os.P_PID, job.process.pid, os.WEXITED | os.WNOWAIT) is not None, "a zombie from now on"
    assert claim(tmp_path / "run") == (tmp_path / "run", None)
    job.end()


def test_a_stopped_job_keeps_its_directory(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.answer()
    job.process.send_signal(signal.SIGSTOP)
    age(tmp_path / "run" / "lock.json", 10 * STALE_S)
    path, owner = claim(tmp_path / "run")
    assert (path.name, owner and owner.pid) == ("run-2", job.process.pid)
    job.process.send_signal(signal.SIGCONT)
    job.end()


def test_a_process_that_got_the_id_of_the_owner_is_not_the_owner(tmp_path: Path) -> None:
    lock_of(tmp_path / "run", pid=os.getppid(), started=1)
    assert claim(tmp_path / "run") == (tmp_path / "run", None)


@pytest.mark.parametrize("content", [{"host": "far", "namespace": "another boot"}, {"pid": "torn"}])
def test_elsewhere_a_lock_counts_while_it_is_touched(tmp_path: Path, content: dict[str, object]) -> None:
    lock = lock_of(tmp_path / "run", **content)
    age(lock, 0.8 * STALE_S)
    path, owner = claim(tmp_path / "run")
    assert path.name == "run-2"
    assert "host" not in content or owner.host == "far"
    age(lock, 1.2 * STALE_S)
    assert claim(tmp_path / "run") == (tmp_path / "run", None)


def test_an_owner_touches_its_lock_and_nobody_elses(tmp_path: Path) -> None:
    path, _ = claim(tmp_path / "run")
    age(lock := path / "lock.json", STALE_S)
    touch(path)
    assert time.time() - lock.stat().st_mtime < STALE_S / 2
    foreign = lock_of(path, host="far", namespace="another boot")
    age(foreign, STALE_S)
    touch(path)
    assert time.time() - foreign.stat().st_mtime > STALE_S / 2


@pytest.mark.parametrize("name", [".", "..", "a/..", "link"])
def test_directories_without_a_name_of_their_own_have_numbered_ones_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    work = tmp_path / "outer" / "work"
    (work / "a").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(work)
    lock_of(Path(name), host="far", namespace="another boot")
    path, owner = claim(Path(name))
    assert owner is not None
    assert path.name.endswith("-2")
    assert not path.samefile(name)
    assert claim(path) == (path, None)
