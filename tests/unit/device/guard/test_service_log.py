"""What the service logs: whole lines, bounded, and never waited for."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from perseus_ds.device.guard.service.service_log import ServiceLog, Severity, is_journal


def logged(log: ServiceLog) -> None:
    log.start()
    log.close()


def test_an_event_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = ServiceLog(as_json=True)
    log.event("lease_taken", "two\nlines", {"gpu": "GPU-1", "owner": 'a "job"', "clock_mhz": None})
    log.event("conflict", "another tool", {"kind": "foreign_lock"}, Severity.WARNING)
    logged(log)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "event": "lease_taken",
        "message": "two?lines",
        "gpu": "GPU-1",
        "owner": 'a "job"',
    }
    assert (second["level"], second["kind"]) == ("warning", "foreign_lock")


def test_a_flood_of_one_user_is_counted_and_hides_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    log = ServiceLog(as_json=True)
    for _ in range(5000):
        log.event("lease_refused", "no rule", {"uid": 7})
    log.event("lease_taken", "a lease", {"uid": 8})
    logged(log)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(entries) < 100
    assert entries[-1]["event"] == "lease_taken"
    assert len(entries) - 1 + entries[-1]["left_out"] == 5000


def test_words_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    log = ServiceLog(as_json=False)
    log.event("lease_taken", "GPU-1 is taken", {"gpu": "GPU-1"})
    logged(log)
    assert capsys.readouterr().err == "perseus_ds guard: GPU-1 is taken\n"


class FullPipe(io.StringIO):
    """A log that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def write(self, text: str) -> int:
        self.let.wait(60.0)
        return super().write(text)


def test_a_log_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = FullPipe()
    monkeypatch.setattr(sys, "stderr", pipe)
    log = ServiceLog(as_json=True)
    log.start()
    for number in range(3000):  # more than may wait; would never return
        log.event(f"event {number}", "", {})
    pipe.let.set()
    log.close()
    numbers = [int(json.loads(line)["event"].split()[1]) for line in pipe.getvalue().splitlines()]
    assert numbers == sorted(numbers)
    assert 1000 < len(numbers) < 3000


def test_systemd_s_journal_is_known_by_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.fstat(2)
    assert not is_journal()
    monkeypatch.setenv("JOURNAL_STREAM", f"{here.st_dev}:{here.st_ino}")
    assert is_journal()
    other = (tmp_path / "other").open("w")
    with other:
        there = os.fstat(other.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        assert not is_journal()
