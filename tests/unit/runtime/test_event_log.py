"""Lines of the job go through the standard library's logging: never to standard output."""

import errno
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from logging.handlers import BufferingHandler
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from lone_job import events_of, logging_in, names_of
from schedules import two_plans

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import RankPlace
from perseus_ds.runtime.event_log import EventLog, LateWrites, Scalars, StragglerReporter, log_troubles
from perseus_ds.straggler.controller import Cause, Straggler, StragglerDecision


@pytest.fixture(params=["", "perseus_ds"])
def kept(request: pytest.FixtureRequest) -> Iterator[BufferingHandler]:
    logger, handler = logging.getLogger(request.param or None), BufferingHandler(100)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_rank_0_alone_speaks_on_standard_error_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        log = EventLog(rank)
        log.line("hello")
        for _ in range(2):
            log.line_once("once")
    assert capsys.readouterr() == ("", "perseus: hello\nperseus: once\n")


def test_a_configured_application_gets_lines_alone_and_its_failures_do_not_reach_the_host(
    kept: BufferingHandler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    EventLog(0).line("50 %")
    EventLog(1).line("said by rank 0")
    EventLog(1).line_here("mine")
    found = [(one.name, one.levelname, one.getMessage()) for one in kept.buffer]
    assert found == [("perseus_ds", "INFO", "50 %"), ("perseus_ds", "WARNING", "mine")]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(kept, "emit", lambda _: 1 // 0)
    EventLog(0).line("hello")


# A disk that is slow, hangs or is full: what is written, in which order, and how long training waits.


def test_on_an_ordinary_disk_a_write_is_over_and_leaves_no_thread() -> None:
    writes, written = LateWrites(patience_s=60.0), list[int]()
    for number in range(50):
        assert writes.write(partial(written.append, number))
        assert written[-1] == number
    assert "perseus-disk" not in [thread.name for thread in threading.enumerate()]


def test_a_write_needs_no_new_thread(log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on none can begin while the interpreter exits."""
    log.event("running")
    error = RuntimeError("can't create new thread at interpreter shutdown")
    monkeypatch.setattr(threading.Thread, "start", MagicMock(side_effect=error))
    for one in (log, logging_in(tmp_path)):
        one.event("ended")
    assert names_of(tmp_path) == ["running", "ended", "ended"]


def test_a_disk_that_hangs_is_waited_for_once_and_gets_everything_in_order() -> None:
    writes, answers, written = LateWrites(patience_s=0.01), threading.Event(), list[int]()
    done = threading.Event()
    assert not writes.write(lambda: (answers.wait(60.0), written.append(0)))
    for number in range(1, 5):
        assert not writes.write(partial(written.append, number))
    assert written == []
    writes.write(done.set)
    answers.set()
    assert done.wait(60.0)
    assert written == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), TypeError("not JSON")], ids=repr)
def test_a_failed_write_costs_one_line(
    error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writes, fails = LateWrites(patience_s=60.0), MagicMock(side_effect=error)
    with pytest.raises(type(error)):
        writes.write(fails)
    assert writes.write(lambda: None)
    EventLog(0).write(tmp_path / "summary.json", fails)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "summary.json") in line


# How often scalars are written, and what happens when a monitor fails.


@pytest.mark.parametrize(
    ("every", "shown", "rows"),
    [(4, [{"plan": 3}] * 7 + [{"plan": 5}] * 2, [3, 3, 5]), (None, [{"plan": 3}], []), (4, [{}], [])],
    ids=["turns 1, 4 and 8", "no monitor", "before a plan"],
)
def test_they_are_written_at_the_hosts_pace_and_at_every_change(
    every: int | None, shown: list[dict[str, float]], rows: list[float]
) -> None:
    adapter = MagicMock(scalars_every=every)
    scalars = Scalars(adapter, EventLog(0))
    for one in shown:
        scalars.write(one)
    assert [call.args[0]["plan"] for call in adapter.write_scalars.call_args_list] == rows


def test_a_monitor_that_fails_ends_the_scalars_alone(capsys: pytest.CaptureFixture[str]) -> None:
    adapter = MagicMock(scalars_every=4)
    adapter.write_scalars.side_effect = OSError("No space left on device")
    scalars = Scalars(adapter, EventLog(0))
    for _ in range(30):
        scalars.write({"plan": 3})
    (line,) = capsys.readouterr().err.splitlines()
    assert "monitor" in line
    adapter.write_scalars.assert_called_once()


# What is wrong with other ranks' counters stands in rank 0's log once.


def test_each_trouble_is_reported_once_with_its_ranks(
    log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    troubles = {0: ["its own"], 1: ["it stands still"], 2: [], 3: ["it stands still", "it counts"]}
    for _ in range(2):
        log_troubles(log, troubles)
    first, second = capsys.readouterr().err.splitlines()
    assert "rank 1, 3" in first
    assert "rank 3" in second
    assert [event["ranks"] for event in events_of(tmp_path)] == [[1, 3], [3]]


# A straggler's coming and going: said once each, with what those who wait save.

SLOW = Straggler(1, 1.25, Cause.MEASURED, doubt=0.00316)
PLANS = two_plans()
SYNC_TIME_S = 1.5 * PLANS.baseline.iteration_time_s
GPUS = [RankPlace(0, 0, "node1", f"0000:{bus:02x}:00.0") for bus in range(5)]


@pytest.fixture
def reporter(log: EventLog) -> StragglerReporter:
    return StragglerReporter(log, PLANS, gpus=[GPUS, GPUS[2:]], names=["replica 0", "replica 1"])


def decided(
    *stragglers: Straggler, sync_time_s: float | None = None, unconfirmed: tuple[int, ...] = ()
) -> StragglerDecision:
    return StragglerDecision(
        sync_time_s, stragglers, np.full(2, np.nan), (0,) if stragglers else (), unconfirmed, changed=True
    )


def test_coming_and_going_are_a_line_each(
    reporter: StragglerReporter, directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another plan beside the same straggler is for the journal."""
    last, slow = len(PLANS) - 1, decided(SLOW, sync_time_s=SYNC_TIME_S)
    for decision, plan in ((slow, last), (slow, last), (slow, 0), (decided(), 0), (decided(), 0)):
        reporter.report(decision, [plan, 0])
    came, went = capsys.readouterr().err.splitlines()
    found = ("replica 1", "node1", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "1.25 times", "99.68 %")
    assert [part for part in found if part not in came] == []
    assert f"with plan {last} of {len(PLANS)}: " in came
    assert "replica 1" in went
    assert "up again" in went
    coming, other, going = read_events(directory.events)
    assert (coming["event"], going["event"]) == ("straggler", "straggler_gone")
    assert (coming["plans"], other["plans"]) == ([last, 0], [0, 0])
    gpus = [{"host": "node1", "gpu": f"0000:0{bus}:00.0"} for bus in (2, 3, 4)]
    figures = {"slowdown": 1.25, "cause": Cause.MEASURED.value, "doubt": 0.00316}
    assert coming["stragglers"] == [{"replica": 1, **figures, "gpus": gpus}]
    assert f"{coming['predicted_saving_pct']:.1f} % energy" in came


def test_slow_but_waited_for_by_nobody_is_no_news(reporter: StragglerReporter, tmp_path: Path) -> None:
    reporter.report(decided(SLOW), [0, 0])
    assert events_of(tmp_path) == []


def test_an_announcement_that_nothing_confirms_is_said_once(
    reporter: StragglerReporter, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        reporter.report(decided(unconfirmed=(1,)), [0, 0])
    (line,) = capsys.readouterr().err.splitlines()
    assert "replica 1" in line
    assert "announced" in line


def test_a_straggler_stays_named_as_answers_end(reporter: StragglerReporter, directory: RunDirectory) -> None:
    reporter.report(decided(SLOW, sync_time_s=9.0), [1, 0])
    for _ in range(2):
        reporter.report(replace(decided(SLOW), ended=True), [0, 0])
    assert [one.replica for one, _ in reporter.awaited] == [1]
    assert [event["event"] for event in read_events(directory.events)] == ["straggler", "answers_ended"]
