"""The node's service: who is let in and what stays, its socket, and what it logs."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.log import log_event
from perseus_ds.guard.protocol import KIND
from perseus_ds.guard.service import ServiceLog, listen

# The service's socket: whose it is, and whose file is never removed for it.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "guardd.sock"


def test_it_is_ours_and_its_groups_and_nobody_elses_and_a_group_that_is_not_there_is_refused(
    path: Path,
) -> None:
    with listen(path, str(os.getgid())), socket.socket(socket.AF_UNIX, KIND) as client:
        found = path.lstat()
        assert stat.S_IMODE(found.st_mode) == 0o660
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
        client.connect(str(path))
    assert not path.exists()
    with pytest.raises(ConfigError, match="no-such-group"), listen(path, "no-such-group"):
        pass
    assert not path.exists()


def test_a_second_service_is_refused_and_that_of_one_that_is_gone_taken_over(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, KIND) as dead:
        dead.bind(str(path))
    with listen(path, None), socket.socket(socket.AF_UNIX, KIND) as client:
        with pytest.raises(DeviceUnavailableError, match="another guardd"), listen(path, None):
            pass
        client.connect(str(path))


def test_what_is_no_socket_is_left_alone_at_both_ends(path: Path) -> None:
    with listen(path, None):
        path.unlink()
        path.write_text("precious")
    with pytest.raises(DevicePermissionError, match="no socket"), listen(path, None):
        pass
    assert path.read_text() == "precious"


# What the service logs: whole lines, bounded, and never waited for.


@contextmanager
def logging_on(*, as_json: bool = True) -> Iterator[ServiceLog]:
    log = ServiceLog(as_json=as_json)
    yield log
    log.close()


def test_an_event_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on():
        log_event("lease_taken", "two\nlines", gpu="GPU-1", owner='a "job"', clock_mhz=None)
        log_event("conflict", "another tool", logging.WARNING, kind="foreign_lock")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("+00:00")
    words = {"level": "info", "event": "lease_taken", "message": "two?lines"}
    assert first == words | {"gpu": "GPU-1", "owner": 'a "job"'}
    assert (second["level"], second["kind"]) == ("warning", "foreign_lock")


def test_a_flood_of_one_user_is_counted_and_hides_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on():
        for _ in range(5000):
            log_event("lease_refused", "no rule", uid=7)
        log_event("lease_taken", "a lease", uid=8)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(entries) < 100
    assert entries[-1]["event"] == "lease_taken"
    assert len(entries) - 1 + entries[-1]["left_out"] == 5000


def test_words_are_for_a_person_and_without_a_service_errors_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logging_on(as_json=False):
        log_event("lease_taken", "GPU-1 is taken", gpu="GPU-1")
    assert capsys.readouterr().err == "perseus_ds guard: GPU-1 is taken\n"
    log_event("lease_taken", "GPU-1 is taken")
    log_event("lease_ended", "its clock may stay locked", logging.ERROR)
    assert capsys.readouterr().err == "perseus_ds guard: its clock may stay locked\n"


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
    with logging_on():
        for number in range(3000):  # more than may wait; would never return
            log_event(f"event {number}", "")
        pipe.let.set()
    numbers = [int(json.loads(line)["event"].split()[1]) for line in pipe.getvalue().splitlines()]
    assert numbers == sorted(numbers)
    assert 1000 < len(numbers) < 3000
