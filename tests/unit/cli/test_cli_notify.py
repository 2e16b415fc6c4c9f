"""``perseus-ds notify`` and ``perseus_ds.notify``: what they leave, and what they refuse."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

import perseus_ds
from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError
from perseus_ds.plan import read_plans, select
from perseus_ds.run_directory import RankPlace, RunDirectory, append_event, write_places
from perseus_ds.straggler import Notices, PowerCaps

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
    assert str(path) in answer.out
    assert answer.err == ""
    assert announced(run_dir) == [1.0, 1.2, 1.0, 1.0]


def test_slowdown_1_ends_it_and_may_be_said_twice(run_dir: Path, perseus: Program) -> None:
    perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1.2)
    for _ in range(2):
        answer = perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1)
        assert answer.code == 0
        assert "pipeline 1" in answer.out
        assert announced(run_dir) == [1.0] * 4


def test_json(run_dir: Path, perseus: Program) -> None:
    words = ("notify", run_dir, "--pipeline", 3, "--slowdown", 1.5, "--reason", "link", "--json")
    path = run_dir / "notices" / "pipeline_3.json"
    expected = {"pipeline": 3, "slowdown": 1.5, "notice": str(path), "pipelines": 4}
    assert json.loads(perseus(*words).out) == expected
    assert json.loads(path.read_text()) == {"slowdown": 1.5, "reason": "link"}


def test_the_file_is_its_owners_alone_whatever_the_umask(run_dir: Path) -> None:
    before = os.umask(0)
    try:
        perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    finally:
        os.umask(before)
    assert announced(run_dir) == [1.2, 1.0, 1.0, 1.0]
    assert [path.name for path in (run_dir / "notices").iterdir()] == ["pipeline_0.json"]


BAD = [
    (4, 1.2, "pipeline 4"),
    (9, 1.2, "pipeline 9"),
    (-1, 1.2, "pipeline -1"),
    ("1.5", 1.2, "pipeline '1.5'"),
    (0, 0.9, "slowdown 0.9"),
    (0, "nan", "slowdown nan"),
    (0, "inf", "slowdown inf"),
    (0, "much", "slowdown 'much'"),
]


@pytest.mark.parametrize(("pipeline", "slowdown", "line"), BAD)
def test_bad_numbers(run_dir: Path, refused: Refused, pipeline: object, slowdown: object, line: str) -> None:
    assert line in refused("notify", run_dir, f"--pipeline={pipeline}", f"--slowdown={slowdown}")
    assert not (run_dir / "notices").exists()


def test_what_is_no_run_directory(tmp_path: Path, refused: Refused) -> None:
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(tmp_path))
    assert "events.jsonl" in line


def test_nobody_has_started_here(tmp_path: Path, refused: Refused) -> None:
    append_event(RunDirectory(tmp_path).events, "something", {})
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(tmp_path))
    assert "started" in line


@pytest.mark.parametrize(("event", "reason"), [("ended", "ended"), ("disabled", "off")])
def test_a_job_that_is_over(run_dir: Path, refused: Refused, event: str, reason: str) -> None:
    append_event(RunDirectory(run_dir).events, event, {})
    line = refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(run_dir))
    assert reason in line
    attached(run_dir, os.getpid())
    perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    assert announced(run_dir)[0] == 1.2


def test_a_job_that_was_killed(tmp_path: Path, refused: Refused) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    attached(tmp_path, gone.pid)
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(tmp_path))
    assert "died" in line


DEAF = [
    ({"replicas": 1}, "one pipeline"),
    ({"start": "observe"}, "observes"),
    ({"stragglers": False}, "straggler.enabled"),
]


@pytest.mark.parametrize(("facts", "reason"), DEAF)
def test_a_job_that_would_not_answer(
    tmp_path: Path, refused: Refused, facts: dict[str, object], reason: str
) -> None:
    attached(tmp_path, os.getpid(), **facts)
    line = refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(tmp_path))
    assert reason in line


def test_a_job_on_another_host_cannot_be_looked_at(tmp_path: Path, perseus: Program) -> None:
    attached(tmp_path, 1, host="elsewhere.invalid")
    assert perseus("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2).code == 0


def test_a_journal_without_the_number_of_pipelines(tmp_path: Path, perseus: Program) -> None:
    append_event(RunDirectory(tmp_path).events, "attached", {})
    answer = perseus("notify", tmp_path, "--pipeline", 9, "--slowdown", 1.2)
    assert answer.code == 0
    assert "pipelines" in answer.err


def test_a_user_who_is_not_believed(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = run_dir.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4321)
    with pytest.raises(PerseusError, match=f"user {owner}"):
        perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    assert not (run_dir / "notices").exists()


def test_a_notices_folder_that_is_a_file(run_dir: Path, refused: Refused) -> None:
    (run_dir / "notices").write_text("")
    line = refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2)
    assert line.startswith(str(run_dir / "notices"))


def test_a_ceiling_is_what_a_job_holds(run_dir: Path, perseus: Program) -> None:
    words = ("--per", "job", "--for", 30, "--ramp", 20, "--reason", "grid event", "--json")
    answer = json.loads(perseus("notify", run_dir, "--power-cap", 1850, *words).out)
    standing = PowerCaps(run_dir / "notices").poll(time.time())
    assert standing.complaints == ()
    assert standing.cap is not None
    assert answer["notice"] == standing.source
    assert (standing.cap.power_cap_w, standing.cap.per, standing.cap.ramp_w_per_s) == (1850.0, "job", 20.0)
    assert standing.cap.until_s == answer["until_s"]
    assert 1790.0 < standing.cap.until_s - time.time() <= 1800.0
    assert perseus("notify", run_dir, "--no-power-cap").code == 0
    assert PowerCaps(run_dir / "notices").poll(time.time()).cap is None


def test_a_ceiling_says_what_it_costs_by_the_plan(run_dir: Path, plan_file: Path, perseus: Program) -> None:
    plans = read_plans(plan_file)
    shutil.copy(plan_file, run_dir / "plan.json")
    power_w = plans.energy_j / plans.iteration_time_s
    cap_w = float(power_w[len(plans) // 2])
    answer = json.loads(perseus("notify", run_dir, "--power-cap", cap_w * 1.0001, "--json").out)
    free_s = select(plans, Objective()).iteration_time_s
    slower = plans.iteration_time_s[len(plans) // 2] / free_s
    assert answer["slowdown_pct"] == pytest.approx(100.0 * (slower - 1.0), abs=0.05)
    told = perseus("notify", run_dir, "--power-cap", 1, "--until", "23:59").out
    assert "slowest" in told
    assert "23:59" in told
    assert "no slower" in perseus("notify", run_dir, "--power-cap", 1e6).out


BAD_CAPS = [
    (("--power-cap", "nan"), "nan W"),
    (("--power-cap=-5",), "-5.0 W"),
    (("--power-cap", "much"), "'much'"),
    (("--power-cap", 5, "--until", "soon"), "until 'soon'"),
    (
        ("--power-cap", 5, "--until", "2020-01-01T00:00"),
        "later time",
    ),
    (
        ("--power-cap", 5, "--pipeline", 1),
        "--pipeline",
    ),
    (("--slowdown", 1.2), "--pipeline"),
]


@pytest.mark.parametrize(("words", "line"), BAD_CAPS)
def test_bad_ceilings(run_dir: Path, refused: Refused, words: tuple[object, ...], line: str) -> None:
    assert line in refused("notify", run_dir, *words)
    assert not (run_dir / "notices").exists()


def test_a_job_that_only_observes_holds_no_ceiling(tmp_path: Path, refused: Refused) -> None:
    attached(tmp_path, os.getpid(), start="observe")
    line = refused("notify", tmp_path, "--power-cap", 5)
    assert line.startswith(str(tmp_path))
    assert "observes" in line
    attached(tmp_path, os.getpid(), replicas=1, stragglers=False)
    perseus_ds.set_power_cap(tmp_path, 5.0)
    perseus_ds.set_power_cap(tmp_path, None)


def test_jobs_share_a_node(tmp_path: Path, plan_file: Path, perseus: Program, refused: Refused) -> None:
    run_dirs = [tmp_path / name for name in ("one", "other")]
    for run_dir in run_dirs:
        attached(run_dir, os.getpid())
        shutil.copy(plan_file, run_dir / "plan.json")
        places = [RankPlace(0, rank, "n0", f"gpu-{rank}") for rank in (0, 1)]
        write_places(places, RunDirectory(run_dir).places)
    power_w = read_plans(plan_file).energy_j / read_plans(plan_file).iteration_time_s
    cap_w = 1.9 * float(power_w[0])
    answer = json.loads(perseus("notify", *run_dirs, "--node", f"n0={cap_w}", "--json").out)
    assert answer["node_w"]["n0"] <= cap_w
    assert [one["run_dir"] for one in answer["jobs"]] == [str(run_dir) for run_dir in run_dirs]
    told = perseus("notify", *run_dirs, "--node", "n0=1").out.splitlines()
    assert told[-1].endswith("plans run")
    assert refused("notify", *run_dirs, "--node", "n0").startswith("--node 'n0'")
    assert "one RUN_DIR" in refused("notify", *run_dirs, "--power-cap", 5)
    assert "one RUN_DIR" in refused("notify", *run_dirs, "--slowdown", 2, "--pipeline", 0)
    assert len(perseus("notify", *run_dirs, "--no-power-cap").out.splitlines()) == 2


def test_a_host_in_maintenance(run_dir: Path, perseus: Program) -> None:
    places = [RankPlace(rank, 0, f"n{rank // 2}", f"gpu-{rank}") for rank in range(4)]
    write_places(places, RunDirectory(run_dir).places)
    told = perseus("notify", run_dir, "--host", "n1", "--slowdown", 1.3).out
    assert [line[:10] for line in told.splitlines()] == ["pipeline 2", "pipeline 3"]
    assert announced(run_dir) == [1.0, 1.0, 1.3, 1.3]
