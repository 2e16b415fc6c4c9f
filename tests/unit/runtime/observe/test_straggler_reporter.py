"""A straggler's coming and going: said once each, with what those who wait save."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_made import two_plans

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog, StragglerReporter
from perseus_ds.runtime.job import GpuAddress
from perseus_ds.straggler.controller import Cause, Straggler, StragglerDecision

SLOW = Straggler(1, 1.25, Cause.MEASURED, doubt=0.00316)
PLANS = two_plans()
GPUS = [GpuAddress("node1", f"0000:{bus:02x}:00.0") for bus in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


@pytest.fixture
def reporter(folder: RunDirectory) -> StragglerReporter:
    log = EventLog(0)
    log.writes_to(folder)
    return StragglerReporter(log, [PLANS, PLANS], [GPUS, GPUS[2:]])


def decided(
    *stragglers: Straggler, sync_time_s: float | None = None, unconfirmed: tuple[int, ...] = ()
) -> StragglerDecision:
    return StragglerDecision(
        sync_time_s, stragglers, np.full(2, np.nan), (0,) if stragglers else (), unconfirmed, changed=True
    )


def test_coming_and_going_are_a_line_each(
    reporter: StragglerReporter, folder: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    last = len(PLANS) - 1
    sync_time_s = 1.5 * PLANS.baseline.iteration_time_s
    for _ in range(2):
        reporter.report(decided(SLOW, sync_time_s=sync_time_s), [last, 0])
    for _ in range(2):
        reporter.report(decided(), [0, 0])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    found = ("replica 1", "node1", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "1.25 times", "99.68 %")
    assert [part for part in found if part not in said[0]] == []
    assert f"with plan {last} of {len(PLANS)}: " in said[0]
    assert "replica 1" in said[1]
    assert "up again" in said[1]
    events = list(read_events(folder.events))
    assert [event["event"] for event in events] == ["straggler", "straggler_gone"]
    assert events[0]["plans"] == [last, 0]
    (straggler,) = events[0]["stragglers"]
    gpus = [{"host": "node1", "gpu": f"0000:0{bus}:00.0"} for bus in (2, 3, 4)]
    figures = {"slowdown": 1.25, "cause": Cause.MEASURED.value, "doubt": 0.00316}
    assert straggler == {"replica": 1, **figures, "gpus": gpus}
    ranks, baseline = PLANS.schedule.ranks, PLANS.baseline
    beside_j = baseline.energy_j + baseline.blocking_power_w * ranks * (
        sync_time_s - baseline.iteration_time_s
    )
    now_j = float(PLANS.effective_energy_j[last]) + PLANS.blocking_power_w * ranks * sync_time_s
    assert events[0]["predicted_saving_pct"] == pytest.approx(100.0 * (1.0 - now_j / beside_j))


def test_of_a_replica_of_many_gpus_the_hosts_are_named(
    reporter: StragglerReporter, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter.report(decided(replace(SLOW, replica=0), sync_time_s=1.0), [0, 0])
    said = capsys.readouterr().err
    assert "replica 0" in said
    assert "1.25 times" in said


def test_another_plan_beside_the_same_straggler_is_for_the_journal(
    reporter: StragglerReporter, folder: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    sync_time_s = 1.5 * PLANS.baseline.iteration_time_s
    reporter.report(decided(SLOW, sync_time_s=sync_time_s), [1, 0])
    capsys.readouterr()
    reporter.report(decided(SLOW, sync_time_s=sync_time_s), [0, 0])
    assert capsys.readouterr().err == ""
    assert [event["plans"] for event in read_events(folder.events)] == [[1, 0], [0, 0]]


def test_slow_but_waited_for_by_nobody_is_no_news(reporter: StragglerReporter, folder: RunDirectory) -> None:
    reporter.report(decided(SLOW), [0, 0])
    assert not folder.events.exists()


def test_an_announcement_that_nothing_confirms_is_said_once(
    reporter: StragglerReporter, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        reporter.report(decided(unconfirmed=(1,)), [0, 0])
    (line,) = capsys.readouterr().err.splitlines()
    assert "replica 1" in line
    assert "announced" in line


def test_one_that_stays_slow_stays_named_when_answers_end(
    reporter: StragglerReporter, folder: RunDirectory
) -> None:
    reporter.report(decided(SLOW, sync_time_s=9.0), [1, 0])
    for _ in range(2):
        reporter.report(replace(decided(SLOW), ended=True), [0, 0])
    assert [one.replica for one, _ in reporter.awaited] == [1]
    assert [event["event"] for event in read_events(folder.events)] == ["straggler", "answers_ended"]
