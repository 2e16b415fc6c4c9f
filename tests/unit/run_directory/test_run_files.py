"""Files of a run directory: what comes back, what is refused, why no figure came; who writes to it."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory.events import append_event, read_events, why_unmeasured
from perseus_ds.run_directory.paths import STALE_S, RunDirectory, claim, release, touch
from perseus_ds.run_directory.records import (
    MeasuredSide,
    RecordedIteration,
    Span,
    Summary,
    read_summary,
    read_timelines,
    write_summary,
    write_timelines,
)
from perseus_ds.schedule import Instruction

SIDES = MeasuredSide(2.0, 1000.0, 20), MeasuredSide(2.01, 850.0, 60)
SUMMARY = Summary(*SIDES, simulated=True, predicted_saving_pct=16.0, facts={"gpu": "A100", "stages": 4})
SPANS = (
    Span(Instruction.parse("0F0"), 0.0, 0.5, 1410, 350.5),
    Span(Instruction.parse("0SA0"), 0.5, 0.01, None, None),
)
TIMELINES = [
    RecordedIteration("baseline", 2.0, 80.0, simulated=True, spans=SPANS),
    RecordedIteration("perseus", 2.01, 80.0, simulated=True, spans=()),
]


def test_files_of_the_contract_of_a_rank_or_a_size_have_their_names() -> None:
    run = RunDirectory(Path("here"))
    paths = [run.profile, run.plan, run.summary, run.events, run.timelines, run.ranks, run.notices]
    paths += [run.plan_of(8), run.rank(7), run.kernels_of(3)]
    assert [str(path.relative_to("here")) for path in paths] == [
        *("profile.json", "plan.json", "summary.json", "events.jsonl", "timelines.json", "ranks", "notices"),
        *("plan.m8.json", "ranks/rank_00007.json", "kernels/rank3.json"),
    ]


@pytest.mark.parametrize(
    ("error_j", "freedom", "quantile"),
    [
        (10.0, 4, 2.306),  # equal shares of the error: 8 degrees of freedom
        (0.0, 9, 2.262),  # all of the error on one side: that side's degrees of freedom
    ],
)
def test_the_interval_of_a_saving_is_welchs(error_j: float, freedom: int, quantile: float) -> None:
    baseline = replace(SUMMARY.baseline, energy_se_j=error_j, freedom=4)
    perseus = replace(SUMMARY.perseus, energy_se_j=8.5, freedom=freedom)
    summary = replace(SUMMARY, baseline=baseline, perseus=perseus)
    assert summary.saving_se_pct is not None
    assert summary.saving_within_pct == pytest.approx(quantile * summary.saving_se_pct, rel=1e-3)
    sides = {"baseline": replace(baseline, energy_se_j=0.0), "perseus": replace(perseus, energy_se_j=0.0)}
    assert replace(SUMMARY, **sides).saving_within_pct == 0.0
    one_alone = replace(summary, perseus=SUMMARY.perseus)
    assert (one_alone.saving_se_pct, one_alone.saving_within_pct) == (None, None)


def test_summary_and_timelines_come_back_with_the_contracts_keys(tmp_path: Path) -> None:
    file = tmp_path / "run" / "summary.json"
    write_summary(SUMMARY, file)
    assert read_summary(file) == SUMMARY
    content = json.loads(file.read_text())
    side = {"iteration_time_s": 2.0, "energy_j": 1000.0, "iterations": 20}
    assert content["baseline"].items() >= side.items()
    assert content["perseus"]["energy_j"] == 850.0
    assert content["saving_pct"] == pytest.approx(15.0)
    assert content["slowdown_pct"] == pytest.approx(0.5)
    assert content["measured"] is True
    write_timelines(TIMELINES, tmp_path / "timelines.json")
    assert read_timelines(tmp_path / "timelines.json") == TIMELINES


def test_missing_files_are_refused_with_what_it_means(tmp_path: Path) -> None:
    with pytest.raises(PerseusError, match="not measured"):
        read_summary(tmp_path / "summary.json")
    with pytest.raises(PerseusError, match=r"timelines\.json"):
        read_timelines(tmp_path / "timelines.json")


def test_events_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    file = tmp_path / "run" / "events.jsonl"
    assert read_events(file) == []
    append_event(file, "profiling", {"clock_mhz": 1410})
    append_event(file, "planned", {"plans": 40})
    append_event(file, "measured", {"saving_pct": math.nan, "parts": [1.0, {"a": math.inf}]})
    first, second, third = read_events(file)
    assert (first["event"], first["clock_mhz"]) == ("profiling", 1410)
    assert (second["event"], second["plans"]) == ("planned", 40)
    assert str(first["time"]) <= str(second["time"])
    assert (third["saving_pct"], third["parts"]) == (None, [1.0, {"a": None}])  # what no JSON can hold


@pytest.mark.parametrize("left", ['{"time": "2026', '{"a": "' + 200_000 * "x", "\0\0\0"])
def test_half_a_line_is_left_out_and_taken_away_by_who_writes_on(tmp_path: Path, left: str) -> None:
    """It is being written, or its writer was killed, the disk was full, or the host went down."""
    file = tmp_path / "events.jsonl"
    append_event(file, "planned", {})
    with file.open("a") as journal:
        journal.write(left)
    assert [event["event"] for event in read_events(file)] == ["planned"]
    append_event(file, "running", {})
    append_event(file, "measured", {})
    assert [event["event"] for event in read_events(file)] == ["planned", "running", "measured"]


def test_what_others_planted_is_neither_followed_nor_written_to(tmp_path: Path) -> None:
    """A user who may write to the run directory may not have us write to files of ours elsewhere."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    (run.path / f".summary.json.{os.getpid()}").symlink_to(precious)
    run.summary.symlink_to(precious)
    run.events.symlink_to(precious)
    write_summary(SUMMARY, run.summary)
    with pytest.raises(OSError, match="symbolic link"):
        append_event(run.events, "planned", {})
    assert precious.read_text() == "mine"
    assert read_summary(run.summary) == SUMMARY


def test_a_journal_that_is_no_file_of_its_own_is_neither_written_to_nor_waited_for(tmp_path: Path) -> None:
    precious, file = tmp_path / "precious", tmp_path / "events.jsonl"
    precious.write_text("mine\n")
    file.hardlink_to(precious)
    with pytest.raises(OSError, match="another name"):
        append_event(file, "planned", {})
    assert precious.read_text() == "mine\n"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(OSError, match="events"):
        append_event(file, "planned", {})
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="ordinary"):
        append_event(file, "planned", {})
    os.close(reader)


# A job that ends without a figure says why.

COURSE = ("attached", "warming_up", "calibrated", "profiling", "profiled", "planning", "running", "measured")


def journal(*names: str, **facts: object) -> list[dict[str, object]]:
    return [{"event": name, **(facts if name == "attached" else {})} for name in names]


@pytest.mark.parametrize(
    ("until", "says"),
    [
        ("attached", "warm-up"),
        ("warming_up", "warm-up"),
        ("profiling", "perseus.profile.max_clocks"),
        ("planning", "profile is"),
        ("running", "first audit"),
    ],
)
def test_it_says_how_far_it_came_and_what_to_do(until: str, says: str) -> None:
    found = why_unmeasured(journal(*COURSE[: COURSE.index(until) + 1], "ended", mode="automatic"))
    assert found is not None
    assert says in found


def test_its_own_figure_a_mode_without_and_an_empty_journal_need_no_excuse() -> None:
    assert why_unmeasured([]) is None
    assert why_unmeasured(journal(*COURSE, "ended")) is None
    assert why_unmeasured([*journal(*COURSE), *journal("attached", "warming_up")]) is not None
    for mode in ("profile", "observe"):
        assert why_unmeasured(journal("attached", "warming_up", mode=mode)) is None
    assert why_unmeasured(journal("attached", mode="automatic", start="observe")) is None


# Who writes to a run directory: one live job, whoever comes first, on this host or another one.

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


AGAIN = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {TAKE!r}, sys.argv[1], '0'])"


def test_a_process_that_starts_another_program_holds_its_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE.replace("sys.stdin.read()", AGAIN), str(tmp_path / "run"), "0"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == 2 * [f"{tmp_path / 'run'} 0"]
    assert not (tmp_path / "run" / "lock.json").exists(), "it was given back at the end"


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
    foreign.write_bytes(b"\xff")
    touch(path)
    release(path)
    assert foreign.exists()


@pytest.mark.parametrize("name", [".", "..", "a/..", "link"])
def test_unnamed_directories_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
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
