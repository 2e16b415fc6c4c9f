"""A disk that is slow, hangs or is full: what is written, in which order, and how long training waits."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog, LateWrites


def test_on_an_ordinary_disk_a_write_is_over_and_leaves_no_thread() -> None:
    writes, written = LateWrites(patience_s=60.0), list[int]()
    for number in range(50):
        assert writes.write(lambda: written.append(number))  # noqa: B023
        assert written[-1] == number
    assert not [thread for thread in threading.enumerate() if thread.name == "perseus-disk"]


@pytest.mark.parametrize("written_before", [True, False])
def test_a_write_needs_no_new_thread(tmp_path: Path, written_before: bool) -> None:  # noqa: FBT001
    """From Python 3.12 on none can begin while the interpreter exits."""
    program = f"""
import threading
from pathlib import Path
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog
log = EventLog(0)
log.writes_to(RunDirectory(Path({str(tmp_path)!r})))
if {written_before}:
    log.event("running")
def refuse(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")
threading.Thread.start = refuse
log.event("ended")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [event["event"] for event in read_events(tmp_path / "events.jsonl")][-1] == "ended"


def test_a_disk_that_hangs_is_waited_for_once_and_gets_everything_in_order() -> None:
    writes, answers, written = LateWrites(patience_s=0.01), threading.Event(), list[int]()
    done = threading.Event()
    assert not writes.write(lambda: (answers.wait(60.0), written.append(0)))
    for number in range(1, 5):
        assert not writes.write(lambda number=number: written.append(number))
    assert written == []
    writes.write(done.set)
    answers.set()
    assert done.wait(60.0)
    assert written == [0, 1, 2, 3, 4]


def refuse() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failure_is_the_writers_own_or_the_next_ones() -> None:
    writes = LateWrites(patience_s=60.0)
    with pytest.raises(OSError, match="No space"):
        writes.write(refuse)
    assert writes.write(lambda: None)


def test_the_journal_holds_when_things_happened(tmp_path: Path) -> None:
    log, directory = EventLog(0), RunDirectory(tmp_path)
    log.writes_to(directory)
    before = datetime.now(UTC)
    log.event("running")
    (event,) = read_events(directory.events)
    assert abs((datetime.fromisoformat(str(event["time"])) - before).total_seconds()) < 60.0


def test_a_file_that_cannot_be_written_costs_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    EventLog(0).write(tmp_path / "summary.json", refuse)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "summary.json") in line
