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


GPU = "GPU-1"


def test_a_journal_comes_back_until_it_is_removed_and_is_written_again_where_its_folder_was(
    folder: Path,
) -> None:
    journal.write(ENTRY)
    assert (journal.read(GPU), list(journal.journaled_uuids())) == (ENTRY, [GPU])
    journal.remove(GPU)
    assert (journal.read(GPU), list(journal.journaled_uuids())) == (None, [])
    journal.write(ENTRY)
    shutil.rmtree(folder)
    journal.write(ENTRY)
    assert journal.read(GPU) == ENTRY


OF = {"uuid": GPU, "name": "A100", "owner": "job (pid 1)", "pid": 1, "boot_id": "boot", "backend": "nvml"}
WHOLE = {"version": 1, "found_mhz": 900, **OF}
WRONG = {  # what no JSON of ours is at all: tests/unit/files
    "a version to come": {"version": 2},
    "an unknown backend": {"backend": "rm -rf"},
    "another GPU": {"uuid": "GPU-2"},
    "a clock of text": {"found_mhz": "900"},
    "a clock of truth": {"found_mhz": True},
    "a clock below zero": {"found_mhz": -900},
    "half a clock": {"found_mhz": 900.5},
    "a clock that no GPU has": {"found_mhz": 10**9},
    "a long owner": {"owner": "x" * 2000},
    "an owner that is none": {"owner": None},
    "a process that cannot be": {"pid": 1 << 40},
}
BAD = {
    "cut short": "{",
    "null": "null",
    **{f"no {key}": json.dumps({k: WHOLE[k] for k in WHOLE if k != key}) for key in ("version", "found_mhz")},
    **{name: json.dumps(WHOLE | one) for name, one in WRONG.items()},
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_bad_journal_is_said_in_one_line(text: str) -> None:
    path = journal.path_of(GPU)
    path.write_text(text)
    with pytest.raises(BadJournalError) as caught:
        journal.read(GPU)
    line = str(caught.value)
    assert str(path) in line
    assert "\n" not in line
    assert len(line) < 400
    journal.remove(GPU)
    assert list(journal.journaled_uuids()) == []


def put_link(path: Path) -> None:
    other = path.with_suffix(".elsewhere")
    other.write_text(json.dumps(WHOLE))
    path.symlink_to(other)


def put_by_somebody(path: Path) -> None:
    if os.geteuid():
        pytest.skip("giving files away needs root")
    path.write_text(json.dumps(WHOLE))
    os.chown(path, 65534, -1)


@pytest.mark.parametrize("put", [put_link, put_by_somebody])
def test_a_journal_that_is_no_file_of_ours_is_not_read_and_replaced(put: Callable[[Path], None]) -> None:
    put(journal.path_of(GPU))
    for _ in range(2):
        with pytest.raises(BadJournalError):
            journal.read(GPU)
    journal.write(ENTRY)
    assert journal.read(GPU) == ENTRY


def test_a_folder_in_its_place_is_named() -> None:
    (journal.path_of(GPU) / "inside").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(BadJournalError):
            journal.read(GPU)
    with pytest.raises(DevicePermissionError, match=r"GPU-1\.json"):
        journal.write(ENTRY)


@pytest.mark.parametrize("uuid", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200])
def test_a_uuid_that_is_no_name_never_becomes_a_path(uuid: str) -> None:
    with pytest.raises(DevicePermissionError, match="cannot be"):
        journal.path_of(uuid)


def test_a_folder_that_cannot_be_or_that_everyone_may_write_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DevicePermissionError, match=r"PERSEUS_GUARD_DIR"):
        journal.read(GPU)
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "/proc/nowhere")
    with pytest.raises(DevicePermissionError, match="set PERSEUS_GUARD_DIR"):
        guard_dir()
