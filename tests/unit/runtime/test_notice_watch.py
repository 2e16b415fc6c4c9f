"""Announcements are looked for beside the training thread, and said on it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from perseus_ds.run_directory.paths import claim, release
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.status import NoticeWatch
from perseus_ds.straggler.notices import Announced, Notices


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


@pytest.fixture
def notices() -> HandNotices:
    return HandNotices()


def looked_twice(notices: HandNotices) -> None:
    """The second look begins when the first has been taken in."""
    for _ in range(3):
        assert notices.looked.acquire(timeout=10.0)


def test_what_is_announced_is_there_after_a_look(notices: HandNotices, tmp_path: Path) -> None:
    watch = NoticeWatch(notices, EventLog(0), sets=((0,), (1,)), directory=tmp_path)
    assert watch.announced.tolist() == [1.0, 1.0]
    notices.observed = Announced(np.array([1.0, 1.5]), 1850.0)
    watch.start()
    looked_twice(notices)
    assert watch.announced.tolist() == [1.0, 1.5]
    assert watch.power_w == 1850.0
    watch.close()


def test_complaints_are_said_once_and_only_when_asked(
    notices: HandNotices, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    watch = NoticeWatch(notices, EventLog(0), sets=((0,), (1,)), directory=tmp_path)
    notices.observed = Announced(np.ones(2), None, ("half a file: ignored",))
    watch.start()
    looked_twice(notices)
    assert capsys.readouterr().err == ""
    watch.report()
    watch.report()
    assert capsys.readouterr().err.count("half a") == 1
    watch.close()


def test_a_file_system_that_hangs_holds_nobody_up(notices: HandNotices, tmp_path: Path) -> None:
    notices.hangs.set()
    watch = NoticeWatch(notices, EventLog(0), sets=((0,), (1,)), directory=tmp_path)
    watch.start()
    watch.report()
    assert watch.announced.tolist() == [1.0, 1.0]
    watch.close()
    notices.goes_on.set()


def test_the_lock_of_the_run_directory_is_touched_meanwhile(
    notices: HandNotices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.runtime.status.TOUCH_EVERY_S", 0.0)
    path, _ = claim(tmp_path / "run")
    lock = path / "lock.json"
    os.utime(lock, (0.0, 0.0))
    watch = NoticeWatch(notices, EventLog(0), sets=((0,), (1,)), directory=path)
    watch.start()
    looked_twice(notices)
    assert lock.stat().st_mtime > 0.0
    watch.close()
    release(path)
