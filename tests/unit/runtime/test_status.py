"""Vector of every rank's report and its exchange in each iteration, notices, and conflicts over clocks."""

import json
import os
import re
import threading
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from lone_job import NotingGpu, events_of, logging_in

from perseus_ds.config import PerseusConfig
from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.clock_change import AskedClocks
from perseus_ds.device.gpu import Achieved, Capabilities, ConflictKind, Sighting
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError, EngineError
from perseus_ds.profile import Interval
from perseus_ds.run_directory.paths import RunDirectory, claim, release
from perseus_ds.run_directory.records import read_ranks
from perseus_ds.runtime.channel import FAILED
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.recorder import Arrivals, Iteration
from perseus_ds.runtime.status import ConflictMonitor, JobStatus, NoticeWatch, StatusExchange, StatusLayout
from perseus_ds.schedule import Instruction, Kind
from perseus_ds.straggler.notices import Announced, Notices

NONE = (0,) * len(ConflictKind)
REST = (0, 0, 5, *NONE[5:])
Said = dict[str, Any]


def told_by(*words: tuple[int, Said], replicas: int = 2) -> JobStatus:
    layouts = [StatusLayout(replicas=replicas, replica=replica) for replica, _ in words]
    vectors = [layout.vector(**said) for layout, (_, said) in zip(layouts, words, strict=True)]
    return layouts[0].job_status(np.maximum.reduce(vectors))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([{"duration_s": 1.5}, {"duration_s": 2.5}], {"failed": False, "plans_ready": 0, "iteration_s": 2.5}),
        (
            [{"duration_s": 1.5, "plans_ready": 1}, {"duration_s": 1.5}],
            {"plans_ready": 1, "iteration_s": 1.5},
        ),
        ([{"duration_s": 1.5}, {"failed": True}], {"failed": True, "plans_ready": 0, "iteration_s": None}),
        ([{"duration_s": 1.5}, {"duration_s": None}], {"failed": False, "iteration_s": None}),
        ([{"conflicts": (0, 1, *REST)}, {"conflicts": (0, 4, *REST)}], {"conflicts": (0, 4, *REST)}),
        ([{"microbatches": 4}] * 2, {"microbatches": 4, "sizes": None}),
        ([{"microbatches": 4}, {"microbatches": 6}], {"microbatches": None, "sizes": (4, 6)}),
        ([{}, {}], {"microbatches": None, "sizes": None}),
    ],
    ids=[
        *("slowest", "plan ready", "one failed", "one does not know", "one conflict at a time"),
        *("batches of one size", "of two", "of sizes that nobody says"),
    ],
)
def test_news_of_all_ranks(words: list[Said], expected: Said) -> None:
    job_status = told_by(*enumerate(words))
    assert {name: getattr(job_status, name) for name in expected} == expected


def test_a_failure_has_its_place_and_one_replica_alone_none_for_replicas() -> None:
    assert StatusLayout(replicas=2, replica=0).vector(failed=True)[FAILED] == 1.0
    job_status = told_by((0, {"own_s": 1.0, "duration_s": 2.0}), replicas=1)
    assert job_status == JobStatus(failed=False, plans_ready=0, iteration_s=2.0)


def test_a_replica_is_as_slow_as_its_slowest_stage_and_unknown_where_one_knows_nothing() -> None:
    job_status = told_by((0, {"own_s": 1.0}), (0, {"own_s": 1.2}), (1, {"own_s": 3.0}), (1, {"own_s": 2.0}))
    assert job_status.replicas.own_s.tolist() == [1.2, 3.0]
    unknown, known = told_by((0, {"own_s": 1.0}), (0, {"own_s": None}), (1, {"own_s": 3.0})).replicas.own_s
    assert not np.isfinite(unknown)
    assert known == 3.0


def test_caps_and_announcements_reach_all() -> None:
    first = {"own_s": 1.0, "announced": np.array([1.0, 1.3])}
    job_status = told_by((0, first), (1, {"own_s": 1.0, "capped": True}), (1, {"own_s": 1.0}))
    assert job_status.replicas.capped.tolist() == [False, True]
    assert job_status.replicas.announced.tolist() == [1.0, 1.3]
    assert (told_by((0, {}), (1, {})).replicas.announced <= 1.0).all(), "nothing announced is no slowdown"


@pytest.mark.parametrize("replicas", [2, 16])
def test_the_exchange_is_as_small_as_its_page_says(replicas: int) -> None:
    page = (Path(__file__).parents[3] / "docs" / "hosts.md").read_text()
    (head,) = re.findall(r"8 \((\d+) \+ 3 R\) bytes", page)
    layout = StatusLayout(replicas=replicas, replica=0)
    assert layout.vector().nbytes == 8 * (int(head) + 3 * replicas)


# The exchange of each iteration: the report posted, the status observed, and the longest wait.


ORDER = (Instruction(0, Kind.BACKWARD, 0), Instruction(0, Kind.REDUCE_GRADS, 0))


def iteration(index: int) -> Iteration:
    backward, reduction = ORDER
    rows = (Interval(backward, 0.0, 8.0), Interval(reduction, 8.0, 10.0))
    return Iteration(index, 0.0, 10.0, rows)


class Rank:
    """The first stage of replica 1 of 2."""

    def __init__(self, *, behind: int = 0) -> None:
        self.channel, asked = MagicMock(), AskedClocks()
        asked.put(DatedClock(-1.0, 1400))
        self.channel.collect.side_effect = repeat(None)  # until something is posted
        self.channel.post.side_effect = self._comes_back
        self.conflict_monitor = MagicMock(report=MagicMock(return_value=()))
        self.watch = MagicMock(looks_between=MagicMock(return_value=[]))
        self.status_exchange = StatusExchange(
            SimpleNamespace(
                channel=self.channel,
                job=SimpleNamespace(replicas=2, replica=1),
                config=PerseusConfig(),
                capabilities=Capabilities((1400, 1000), (), True, None, 0.1, 0.02),
            ),
            arrivals=Arrivals(ORDER, pipeline_rank=0, behind=behind),
            conflict_monitor=self.conflict_monitor,
            watch=self.watch,
            asked=asked,
            notices=MagicMock(announced=np.array([1.3, 1.0]), power_w=1850.0),
        )

    def _comes_back(self, numbers: np.ndarray) -> None:
        self.channel.collect.side_effect = repeat(numbers)

    def turn(self, index: int, *passed: int) -> JobStatus | None:
        return self.status_exchange.turn(index, [iteration(i) for i in passed], plans_ready=0, microbatches=4)

    def own_s(self, index: int, *passed: int) -> float:
        self.turn(index, *passed)
        return float(self.turn(index + 1).replicas.own_s[1])


def test_an_iterations_own_time_is_heard_in_the_next_turn_where_it_is_known() -> None:
    assert Rank().turn(0, 0) is None
    assert Rank().own_s(0, 0) == pytest.approx(8.0)
    assert Rank().own_s(0) == np.inf


def test_where_the_device_is_behind_all_tell_of_the_iteration_before() -> None:
    """A rank reports of the same iteration as all, even if its device has passed the last one."""
    early, late = Rank(behind=1), Rank(behind=1)
    early.turn(0, 0)
    late.turn(0)
    assert early.own_s(1, 1) == late.own_s(1, 0) == pytest.approx(8.0)


def test_caps_announcements_and_conflicts_are_told() -> None:
    rank, conflicts = Rank(), (0, 2, *NONE[2:])
    rank.watch.looks_between.return_value = [(5.0, Achieved(1000, 0))]
    rank.conflict_monitor.report.return_value = conflicts
    rank.turn(0, 0)
    job_status = rank.turn(1, 1)
    assert job_status.replicas.capped.tolist() == [False, True]
    assert job_status.replicas.announced.tolist() == [1.3, 1.0]
    assert job_status.power_w == 1850.0
    assert rank.conflict_monitor.learn.call_args.args[0] == conflicts


def test_silence_is_no_failure_and_a_failure_is_told() -> None:
    rank = Rank()
    assert not rank.status_exchange.someone_failed()
    rank.status_exchange.fail()
    assert rank.status_exchange.someone_failed()
    rank.channel.collect.side_effect = EngineError("a rank fell silent")
    assert not rank.status_exchange.someone_failed()
    rank.status_exchange.fail()


# Announcements are looked for beside the training thread, and said on it.


class HandNotices(Notices):
    """Says what the test put there; notes every look, and hangs where the test wants it."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"), replicas=2)
        self.observed = Announced(np.ones(2))
        self.looked = threading.Semaphore(0)
        self.hangs = threading.Event()
        self.goes_on = threading.Event()

    def poll(self) -> Announced:
        if self.hangs.is_set():
            self.goes_on.wait(30.0)
        observed, self.observed = self.observed, Announced(self.observed.slowdown, self.observed.power_w)
        self.looked.release()
        return observed

    def watch(self, folder: Path) -> NoticeWatch:
        return NoticeWatch(self, EventLog(0), sets=((0,), (1,)), directory=folder)

    def wait_for_two(self) -> None:
        """The second look begins when the first has been taken in."""
        for _ in range(3):
            assert self.looked.acquire(timeout=10.0)


def test_announcements_are_there_after_a_look_and_complaints_said_once_when_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    notices = HandNotices()
    notices.observed = Announced(np.array([1.0, 1.5]), 1850.0, ("half a file: ignored",))
    watch = notices.watch(tmp_path)
    notices.wait_for_two()
    assert watch.announced.tolist() == [1.0, 1.5]
    assert watch.power_w == 1850.0
    assert capsys.readouterr().err == ""
    watch.report()
    watch.report()
    assert capsys.readouterr().err.count("half a") == 1
    watch.close()


def test_a_file_system_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    notices = HandNotices()
    notices.hangs.set()
    watch = notices.watch(tmp_path)
    watch.report()
    assert watch.announced.tolist() == [1.0, 1.0]
    watch.close()
    notices.goes_on.set()


def test_the_directorys_lock_is_touched_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices = HandNotices()
    monkeypatch.setattr("perseus_ds.runtime.status.TOUCH_EVERY_S", 0.0)
    path, _ = claim(tmp_path / "run")
    lock = path / "lock.json"
    os.utime(lock, (0.0, 0.0))
    watch = notices.watch(path)
    notices.wait_for_two()
    assert lock.stat().st_mtime > 0.0
    watch.close()
    release(path)


# Conflicts over clocks: the rank that logs one, how often, and the counts.

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK
CAPPED = Sighting(ConflictKind.POWER_CAP, "the power cap holds the clock down: 900 MHz asked, 800 seen", 7)


class ContestedGpu(NotingGpu):
    """A GPU that others work on, and whose service comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sighting] = []
        self.why: DeviceError | None = None
        self.losses = self.returns = 0
        self.doubted = False

    def conflicts(self) -> tuple[Sighting, ...]:
        counts = ((LOST, self.losses), (BACK, self.returns))
        return (*self.seen, *(Sighting(kind, kind.text, count) for kind, count in counts if count))

    def given_up(self) -> DeviceError | None:
        return self.why

    def in_control(self) -> bool:
        return self.losses == self.returns and not self.doubted


class Ranks:
    """The ranks of a job, whose reports travel as in an exchange: the greatest of each place."""

    def __init__(self, folder: Path, *, ranks: int = 1, first: int = 0) -> None:
        self.gpus = [ContestedGpu() for _ in range(ranks)]
        self.folder, directory = folder, RunDirectory(folder)
        self.monitors = [
            ConflictMonitor(gpu, logging_in(folder, rank), rank=rank, directory=directory)
            for rank, gpu in enumerate(self.gpus, first)
        ]

    def iterate(self, times: int = 1) -> None:
        for _ in range(times):
            for monitor in self.monitors:
                assert monitor.check() is None
            reports = [monitor.report() or NONE for monitor in self.monitors]
            for monitor in self.monitors:
                monitor.learn(list(map(max, *reports, NONE)))

    def recorded(self) -> list[tuple[str, int]]:
        return [(event["kind"], event["rank"]) for event in events_of(self.folder)]


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return ["lost" if LOST.text in line else "back" if BACK.text in line else line for line in lines]


def test_a_kind_is_said_once_and_recorded_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exchange keeps the greatest of each place: the last rank is noted first, then falls silent."""
    ranks = Ranks(tmp_path, ranks=2)
    for gpu in ranks.gpus:
        gpu.seen = [CAPPED]
    ranks.iterate(3)
    assert ranks.monitors[0].report() == ()
    (line,) = said(capsys)
    assert "rank 1" in line
    assert "power cap" in line
    assert ranks.recorded() == [("power_cap", 1), ("power_cap", 0)]


def test_the_reason_for_giving_up_is_handed_over(tmp_path: Path) -> None:
    here = Ranks(tmp_path)
    here.gpus[0].why = DeviceUnavailableError("somebody else changed the clock")
    assert here.monitors[0].check() is here.gpus[0].why


@pytest.mark.parametrize("rank", [0, 2])
def test_a_lost_gpu_counts_though_nobody_saw_it_go(tmp_path: Path, rank: int) -> None:
    [here] = (ranks := Ranks(tmp_path, first=rank)).monitors
    here.note_failure(DeviceLostError("GPU 0: read energy: the GPU is lost"))
    assert [one.kind for one in here.sightings()] == [ConflictKind.GPU_LOST]
    assert set(here.report()) == {0, 1 + rank}
    assert rank or ranks.recorded() == [("gpu_lost", 0)]


def test_counts_are_added_to_what_stands_in_the_ranks_file(tmp_path: Path) -> None:
    [here], [gpu] = (ranks := Ranks(tmp_path)).monitors, ranks.gpus
    here.write()
    assert not (tmp_path / "ranks").exists()
    gpu.seen, file = [CAPPED], tmp_path / "ranks" / "rank_00000.json"
    here.write()
    assert file.exists()
    assert read_ranks(file.parent) == [], "a report reads over what a job leaves that ends before an audit"
    file.write_text('{"rank": 0, "stage": 4}')
    here.write()
    content = json.loads(file.read_text())
    assert content["stage"] == 4
    assert content["conflicts"] == [{"kind": "power_cap", "line": CAPPED.line, "count": 7}]


def test_a_hung_disk_keeps_no_rank_from_leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [here], [gpu] = (ranks := Ranks(tmp_path)).monitors, ranks.gpus
    gpu.seen, answers, hung = [CAPPED], threading.Event(), threading.Event()

    def hang(path: Path, content: object) -> None:
        hung.set()
        answers.wait()

    monkeypatch.setattr("perseus_ds.runtime.status.write_json", hang)
    leaving = threading.Thread(target=here.write, daemon=True)
    leaving.start()
    assert hung.wait(30.0)
    leaving.join(30.0)
    left = not leaving.is_alive()
    answers.set()
    assert left, "the clock is given back after this"


# Control that is lost and comes back: one line for each, however many ranks lose it and however soon.


def test_every_loss_and_every_return_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where control comes back within an iteration."""
    ranks = Ranks(tmp_path, ranks=4)
    for lost, back in ((True, False), (False, True), (True, False), (False, True), (True, True)):
        for gpu in ranks.gpus:
            gpu.losses += lost
            gpu.returns += back
        ranks.iterate(8)
        assert said(capsys) == ["lost"] * lost + ["back"] * back
    for kind in ("control_lost", "control_back"):
        assert sorted(ranks.recorded()).count((kind, 2)) == 3


def test_iterations_count_where_clocks_are_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guard that does not answer for a while is doubted in silence."""
    [gpu], [monitor] = (ranks := Ranks(tmp_path)).gpus, ranks.monitors
    counted = []
    for change in ("", "losses", "", "returns", "", "both", "", "doubted", ""):
        gpu.losses += change in {"losses", "both"}
        gpu.returns += change in {"returns", "both"}
        gpu.doubted = change == "doubted"
        gpu.time_s += 1.0
        monitor.check()
        counted.append(monitor.controlled)
    assert counted == [True, False, False, False, True, False, True, False, False]
    assert monitor.uncontrolled_s == 9.0
    assert said(capsys) == []
