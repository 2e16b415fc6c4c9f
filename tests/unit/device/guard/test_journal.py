"""Journals on disk, and what is read from damaged ones."""

from pathlib import Path

import pytest

from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.journal import Journal
from perseus_ds.device.guard.claim.ownership_lock import OwnershipLock
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError

ENTRY = Journal("GPU-1", "A100", 900, "job (pid 1)", 1, "boot")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))
    return tmp_path / "guard"


def test_a_journal_comes_back_until_it_is_removed() -> None:
    journal.write(ENTRY)
    assert journal.read("GPU-1") == ENTRY
    assert list(journal.journaled()) == ["GPU-1"]
    journal.remove("GPU-1")
    assert journal.read("GPU-1") is None
    assert list(journal.journaled()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"found_mhz": "x"}', '{"found_mhz": 900}', '"text"', "null"]
)
def test_a_damaged_journal_still_asks_for_a_reset(folder: Path, text: str) -> None:
    journal.path_of("GPU-1").write_text(text)
    damaged = journal.read("GPU-1")
    assert damaged is not None
    assert damaged.preexisting_mhz is None


@pytest.mark.parametrize("uuid", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200])
def test_a_uuid_that_is_no_name_never_becomes_a_path(uuid: str) -> None:
    with pytest.raises(DevicePermissionError, match="cannot be the name of a GPU"):
        journal.path_of(uuid)


def test_a_second_lease_is_refused_with_the_owners_name() -> None:
    lease = OwnershipLock("GPU-1", "job (pid 1)")
    with pytest.raises(DeviceUnavailableError, match=r"held by job \(pid 1\)"):
        OwnershipLock("GPU-1", "other")
    lease.release()
    lease.release()
    OwnershipLock("GPU-1", "other").release()


def test_a_folder_that_cannot_be_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "/proc/nowhere")
    with pytest.raises(DevicePermissionError, match="set PERSEUS_GUARD_DIR"):
        journal.guard_dir()
