"""``perseus-ds notify`` and ``perseus_ds.notify``: what they leave, and what they refuse."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

import perseus_ds
from perseus_ds.errors import PerseusError
from perseus_ds.run_directory import RunDirectory, append_event
from perseus_ds.straggler import Notices

Refused = Callable[..., str]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of a job of four pipelines that runs: this process stands for its rank 0."""
    path = tmp_path / "run"
    attached(path, os.getpid())
    return path


def attached(path: Path, pid: int, **facts: object) -> None:
    here = {"replicas": 4, "host": socket.gethostname(), "pid": pid}
    append_event(RunDirectory(path).events, "attached", here | facts)


def announced(run_dir: Path) -> list[float]:
    observed = Notices(run_dir / "notices", replicas=4).poll()
    assert observed.complaints == ()
    return observed.announced.tolist()


def test_what_is_announced_is_what_a_job_hears(run_dir: Path, perseus: Program) -> None:
    answer = perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1.2)
    assert answer.code == 0
    path = run_dir / "notices" / "pipeline_1.json"
    assert answer.out == f"pipeline 1 is announced to be 1.2 times slower: {path}\n"
    assert answer.err == ""
    assert announced(run_dir) == [1.0, 1.2, 1.0, 1.0]


def test_slowdown_1_ends_it_and_may_be_said_twice(run_dir: Path, perseus: Program) -> None:
    perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1.2)
    for _ in range(2):
        answer = perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1)
        assert (answer.code, answer.out) == (0, "pipeline 1 is not announced to be slow any more\n")
        assert announced(run_dir) == [1.0] * 4


def test_json(run_dir: Path, perseus: Program) -> None:
    words = ("notify", run_dir, "--pipeline", 3, "--slowdown", 1.5, "--reason", "a slow link", "--json")
    path = run_dir / "notices" / "pipeline_3.json"
    expected = {"pipeline": 3, "slowdown": 1.5, "notice": str(path), "pipelines": 4}
    assert json.loads(perseus(*words).out) == expected
    assert json.loads(path.read_text()) == {"slowdown": 1.5, "reason": "a slow link"}


def test_the_file_is_its_owners_alone_whatever_the_umask(run_dir: Path) -> None:
    before = os.umask(0)
    try:
        perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    finally:
        os.umask(before)
    assert announced(run_dir) == [1.2, 1.0, 1.0, 1.0]
    assert [path.name for path in (run_dir / "notices").iterdir()] == ["pipeline_0.json"]


BAD = [
    (4, 1.2, "pipeline 4 does not exist: the job has 0 to 3"),
    (9, 1.2, "pipeline 9 does not exist: the job has 0 to 3"),
    (-1, 1.2, "pipeline -1 does not exist (pipelines count from 0)"),
    ("1.5", 1.2, "pipeline '1.5' is not a whole number from 0 on"),
    (0, 0.9, "slowdown 0.9 is below 1: 1.2 means an iteration takes 20 % longer"),
    (0, "nan", "slowdown nan is not a finite number"),
    (0, "inf", "slowdown inf is not a finite number"),
    (0, "much", "slowdown 'much' is not a number"),
]


@pytest.mark.parametrize(("pipeline", "slowdown", "line"), BAD)
def test_bad_numbers(run_dir: Path, refused: Refused, pipeline: object, slowdown: object, line: str) -> None:
    assert refused("notify", run_dir, f"--pipeline={pipeline}", f"--slowdown={slowdown}") == line
    assert not (run_dir / "notices").exists()


def test_what_is_no_run_directory(tmp_path: Path, refused: Refused) -> None:
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line == (
        f"{tmp_path} is not a run directory: it has no events.jsonl (give the run_dir of a job that runs)"
    )


def test_nobody_has_started_here(tmp_path: Path, refused: Refused) -> None:
    append_event(RunDirectory(tmp_path).events, "something", {})
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line == f"{tmp_path}: no job has started here yet"


@pytest.mark.parametrize(
    ("event", "reason"), [("ended", "its job has ended"), ("disabled", "its job has switched perseus off")]
)
def test_a_job_that_is_over(run_dir: Path, refused: Refused, event: str, reason: str) -> None:
    append_event(RunDirectory(run_dir).events, event, {})
    line = refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2)
    assert line == f"{run_dir}: {reason}, nobody would hear"
    attached(run_dir, os.getpid())
    perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    assert announced(run_dir)[0] == 1.2


def test_a_job_that_was_killed(tmp_path: Path, refused: Refused) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    attached(tmp_path, gone.pid)
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line == f"{tmp_path}: its job has died, nobody would hear"


DEAF = [
    ({"replicas": 1}, "its job has one pipeline and nobody waits for it"),
    ({"start": "observe"}, "its job only observes"),
    ({"stragglers": False}, "its job has straggler.enabled false"),
]


@pytest.mark.parametrize(("facts", "reason"), DEAF)
def test_a_job_that_would_not_answer(
    tmp_path: Path, refused: Refused, facts: dict[str, object], reason: str
) -> None:
    attached(tmp_path, os.getpid(), **facts)
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line == f"{tmp_path}: {reason}, a notice would change nothing"


def test_a_job_on_another_host_cannot_be_looked_at(tmp_path: Path, perseus: Program) -> None:
    attached(tmp_path, 1, host="elsewhere.invalid")
    assert perseus("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2).code == 0


def test_a_journal_without_the_number_of_pipelines(tmp_path: Path, perseus: Program) -> None:
    append_event(RunDirectory(tmp_path).events, "attached", {})
    answer = perseus("notify", tmp_path, "--pipeline", 9, "--slowdown", 1.2)
    assert answer.code == 0
    assert "does not say how many pipelines the job has" in answer.err


def test_a_user_who_is_not_believed(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = run_dir.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4321)
    with pytest.raises(
        PerseusError, match=f"belongs to user {owner}: the job hears nobody but them and root"
    ):
        perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    assert not (run_dir / "notices").exists()


def test_a_notices_folder_that_is_a_file(run_dir: Path, refused: Refused) -> None:
    (run_dir / "notices").write_text("")
    line = refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2)
    assert line == f"{run_dir / 'notices'}: File exists"
