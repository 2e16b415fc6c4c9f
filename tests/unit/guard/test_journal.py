"""Journals on disk, and what is read from damaged ones."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_ds.errors import DevicePermissionError
from perseus_ds.guard import journal
from perseus_ds.guard.journal import BadJournalError, Journal, guard_dir

ENTRY = Journal("GPU-1", "A100", 900, "job (pid 1)", 1, "boot")


def test_a_journal_comes_back_until_it_is_removed() -> None:
    journal.write(ENTRY)
    assert journal.read("GPU-1") == ENTRY
    assert list(journal.journaled_uuids()) == ["GPU-1"]
    journal.remove("GPU-1")
    assert journal.read("GPU-1") is None
    assert list(journal.journaled_uuids()) == []


GPU = "GPU-1"

WHOLE = {
    "version": 1,
    "found_mhz": 900,
    "uuid": "GPU-1",
    "name": "A100",
    "owner": "job (pid 1)",
    "pid": 1,
    "boot_id": "boot",
    "backend": "nvml",
}
BAD = {  # what no JSON of ours is at all: tests/unit/files
    "cut short": "{",
    "null": "null",
    "a version to come": json.dumps(WHOLE | {"version": 2}),
    "no version": json.dumps({key: WHOLE[key] for key in WHOLE if key != "version"}),
    "an unknown backend": json.dumps(WHOLE | {"backend": "rm -rf"}),
    "another GPU": json.dumps(WHOLE | {"uuid": "GPU-2"}),
    "a clock of text": json.dumps(WHOLE | {"found_mhz": "900"}),
    "a clock of truth": json.dumps(WHOLE | {"found_mhz": True}),
    "a clock below zero": json.dumps(WHOLE | {"found_mhz": -900}),
    "half a clock": json.dumps(WHOLE | {"found_mhz": 900.5}),
    "a clock that no GPU has": json.dumps(WHOLE | {"found_mhz": 10**9}),
    "no clock": json.dumps({key: WHOLE[key] for key in WHOLE if key != "found_mhz"}),
    "a long owner": json.dumps(WHOLE | {"owner": "x" * 2000}),
    "an owner that is none": json.dumps(WHOLE | {"owner": None}),
    "a process that cannot be": json.dumps(WHOLE | {"pid": 1 << 40}),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_bad_journal_is_said_in_one_line(text: str) -> None:
    path = journal.path_of("GPU-1")
    path.write_text(text)
    with pytest.raises(BadJournalError) as caught:
        journal.read("GPU-1")
    line = str(caught.value)
    assert str(path) in line
    assert "\n" not in line
    assert len(line) < 400
    journal.remove("GPU-1")
    assert list(journal.journaled_uuids()) == []


def put_link(path: Path) -> None:
    other = path.with_suffix(".elsewhere")
    other.write_text(json.dumps(WHOLE))
    path.symlink_to(other)


def put_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


def put_by_somebody(path: Path) -> None:
    if os.geteuid():
        pytest.skip("giving files away needs root")
    path.write_text(json.dumps(WHOLE))
    os.chown(path, 65534, -1)


REPLACED = [
    put_link,
    put_by_somebody,
]


@pytest.mark.parametrize("put", [*REPLACED, put_folder])
def test_a_journal_that_is_no_file_of_ours_is_not_read(put: Callable[[Path], None]) -> None:
    put(journal.path_of("GPU-1"))
    for _ in range(2):
        with pytest.raises(BadJournalError):
            journal.read("GPU-1")


@pytest.mark.parametrize("put", REPLACED)
def test_the_next_job_writes_its_own_in_place_of_it(put: Callable[[Path], None]) -> None:
    put(journal.path_of("GPU-1"))
    journal.write(ENTRY)
    assert journal.read("GPU-1") == ENTRY


def test_a_folder_in_its_place_is_named() -> None:
    put_folder(journal.path_of("GPU-1"))
    with pytest.raises(DevicePermissionError, match=r"GPU-1\.json"):
        journal.write(ENTRY)


def test_a_journal_whose_folder_was_removed_is_written_again(folder: Path) -> None:
    journal.write(ENTRY)
    shutil.rmtree(folder)
    journal.write(ENTRY)
    assert journal.read("GPU-1") == ENTRY


@pytest.mark.parametrize("uuid", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200])
def test_a_uuid_that_is_no_name_never_becomes_a_path(uuid: str) -> None:
    with pytest.raises(DevicePermissionError, match="cannot be"):
        journal.path_of(uuid)


def test_a_folder_that_cannot_be_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "/proc/nowhere")
    with pytest.raises(DevicePermissionError, match="set PERSEUS_GUARD_DIR"):
        guard_dir()


def test_a_folder_that_everyone_may_write_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DevicePermissionError, match=r"PERSEUS_GUARD_DIR"):
        journal.read("GPU-1")
